"""The trained model of one rank: optimizer steps, weights in and out, state on disk."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from sestina.core.errors import RunError
from sestina.core.units import Version
from sestina.models.shape import ModelShape
from sestina.trainer import checkpoint, convert
from sestina.trainer.backend import Backend
from sestina.trainer.config import TrainerConfig
from sestina.trainer.microbatch import MicroBatch
from sestina.trainer.model import build_model, build_optimizer, wrap
from sestina.trainer.passes import Loss, logprob_pass, train_pass

Metrics = dict[str, float]


class Trainer:
    """One rank of the trainer. Every method is collective: all ranks call it with equal arguments."""

    def __init__(
        self, config: TrainerConfig, shape: ModelShape, backend: Backend, weights: Mapping[str, Tensor]
    ) -> None:
        self.config = config
        self.device = backend.device
        self._shape = shape
        self.model = build_model(shape, config, backend)
        convert.load(self.model, shape, weights)
        self._ddp = wrap(self.model, config)
        self._optimizer, self._scheduler = build_optimizer(self._ddp, config)

    def step(
        self,
        batches: Sequence[MicroBatch],
        loss: Loss,
        *,
        temperature: float,
        check: Callable[[Metrics], None] | None = None,
    ) -> Metrics:
        """Take one optimizer step; returns means over response tokens of what `loss` sums, and the step's own figures.

        `check` sees those means before the weights change, and may raise. Raises RunError when the gradient is not
        finite.
        """
        totals = train_pass(self._ddp, self._optimizer, batches, loss, temperature=temperature)
        sums = {name: float(total) for name, total in totals.items()}
        denominator, tokens = sums.pop("denominator"), sums.pop("response_tokens")
        metrics = {name: total / (denominator if name == "pg_loss" else tokens) for name, total in sums.items()}
        if check is not None:
            check(metrics)
        self._scheduler.step(1)
        grad_norm = float(self._optimizer.step()[1])  # type: ignore[index] - Megatron's annotation forgets the tuple
        if not math.isfinite(grad_norm):
            raise RunError(f"the gradient norm is {grad_norm}")
        learning_rate = self._optimizer.param_groups[0]["lr"]
        return metrics | {"response_tokens": tokens, "grad_norm": grad_norm, "lr": learning_rate}

    def logprobs(self, batches: Sequence[MicroBatch], *, temperature: float) -> list[Tensor]:
        """Return each micro-batch's logprobs [T]; empty on all but the last pipeline stage."""
        return logprob_pass(self._ddp, batches, temperature=temperature)

    def export(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their Hugging Face names on the first rank; see `convert.export`."""
        return convert.export(self.model, self._shape)

    def save(self, directory: Path, version: Version) -> None:
        """Write model, optimizer and schedule below an existing empty directory."""
        checkpoint.save(directory, self.model, self._optimizer, self._scheduler, version)

    def load(self, directory: Path) -> Version:
        """Continue from what `save` wrote, under this or another parallel layout; returns its version."""
        return checkpoint.load(directory, self.model, self._optimizer, self._scheduler)


def likelihood(logprobs: Tensor, entropy: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Supervised loss: negative log-likelihood of the response tokens."""
    weights = batch.policy.weights
    loss = -(logprobs * weights).sum()
    sums = {
        "nll": loss.detach(),
        "response_tokens": (weights > 0).float().sum(),
    }
    return loss, sums


def mean_over(steps: Sequence[Metrics]) -> Metrics:
    """Average steps' figures; token counts are summed, the learning rate is the last one's."""
    merged: Metrics = {}
    for name in dict.fromkeys(name for step in steps for name in step):
        values = [step[name] for step in steps if name in step]
        merged[name] = sum(values) if name == "response_tokens" else sum(values) / len(values)
    if steps:
        merged["lr"] = steps[-1]["lr"]
    return merged
