"""The trained model of one rank: gradient steps, weights in and out, state on disk.

A batch goes: advantages -> align -> minibatches -> micro-batches -> one pass and one optimizer step per minibatch.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from megatron.core import parallel_state as ps
from torch import Tensor

from sestina.algorithms.advantages import Advantages, group_advantages
from sestina.algorithms.config import GRPOConfig
from sestina.algorithms.grpo import policy_loss
from sestina.core.errors import MismatchError, RunError
from sestina.core.units import Version
from sestina.models.shape import ModelShape
from sestina.trainer import checkpoint, convert, microbatch
from sestina.trainer.backend import Backend
from sestina.trainer.config import TrainerConfig
from sestina.trainer.microbatch import MicroBatch, Samples
from sestina.trainer.model import build_model, build_optimizer, wrap
from sestina.trainer.passes import Loss, logprob_pass, train_pass
from sestina.trainer.reference import Reference
from sestina.transport.messages import SampleBatch

DIFF = "train_rollout_logprob_abs_diff"


class Trainer:
    """One rank of the trainer. Every method is collective: all ranks call it with equal arguments."""

    def __init__(
        self,
        config: TrainerConfig,
        algorithm: GRPOConfig,
        shape: ModelShape,
        backend: Backend,
        weights: Mapping[str, Tensor],
    ) -> None:
        self._config = config
        self._algorithm = algorithm
        self._shape = shape
        self._device = backend.device
        self._model = build_model(shape, config, backend)
        convert.load(self._model, shape, weights)
        self._ddp = wrap(self._model, config)
        self._optimizer, self._scheduler = build_optimizer(self._ddp, config)
        self._reference = Reference(self._model) if algorithm.kl_coefficient else None

    def train(self, batch: SampleBatch, *, temperature: float) -> dict[str, float]:
        """Take the optimizer steps of one batch; returns metrics of the `train/` namespace.

        Raises MismatchError, before anything is changed, when the first minibatch's logprobs differ from those the
        rollout recorded by more than `max_logprob_diff` on average; RunError when a gradient is not finite.
        """
        rewards = torch.from_numpy(batch.rewards.copy())
        advantages = group_advantages(rewards, torch.from_numpy(batch.groups.copy()), self._algorithm.advantage_scale)
        samples = microbatch.align(batch, advantages.values.numpy(), advantages.counted.numpy())
        metrics = _batch_metrics(advantages)
        steps: list[dict[str, float]] = []
        for number, chosen in enumerate(microbatch.minibatches(samples, self._algorithm.minibatches)):
            if not samples.response_lengths[chosen].any():
                metrics["train/skipped_minibatches"] += 1
                continue
            batches = self._micro_batches(samples, chosen, temperature)
            steps.append(self._minibatch(batches, temperature, on_policy=number == 0))
        return metrics | _merge(steps)

    def supervise(self, batches: list[MicroBatch]) -> dict[str, float]:
        """Take one optimizer step towards the targets of these micro-batches (maximum likelihood)."""
        return self._step(batches, _likelihood, temperature=1.0, on_policy=False)

    def export(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their Hugging Face names on the first rank; see `convert.export`."""
        return convert.export(self._model, self._shape)

    def save(self, directory: Path, version: Version) -> None:
        """Write model, optimizer and schedule below an existing empty directory."""
        checkpoint.save(directory, self._model, self._optimizer, self._scheduler, version)

    def load(self, directory: Path) -> Version:
        """Continue from what `save` wrote, under this or another parallel layout; returns its version."""
        return checkpoint.load(directory, self._model, self._optimizer, self._scheduler)

    def _micro_batches(self, samples: Samples, chosen: list[int], temperature: float) -> list[MicroBatch]:
        batches = microbatch.micro_batches(
            samples,
            chosen,
            budget=self._config.max_micro_batch_tokens,
            replicas=ps.get_data_parallel_world_size(),
            replica=ps.get_data_parallel_rank(),
            loss_mean=self._algorithm.loss_mean,
            pad_to=self._config.tensor_parallel if self._config.sequence_parallel else 1,
            device=self._device,
        )
        if self._reference is None:
            return batches
        with self._reference.swapped_in():
            logprobs = logprob_pass(self._ddp, batches, temperature=temperature)
        return [_with_reference(*pair) for pair in zip(batches, logprobs, strict=True)] if logprobs else batches

    def _minibatch(self, batches: list[MicroBatch], temperature: float, *, on_policy: bool) -> dict[str, float]:
        def loss(logprobs: Tensor, entropy: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
            return policy_loss(logprobs, entropy, batch.policy, self._algorithm)

        return self._step(batches, loss, temperature=temperature, on_policy=on_policy)

    def _step(self, batches: list[MicroBatch], loss: Loss, *, temperature: float, on_policy: bool) -> dict[str, float]:
        sums = {
            name: float(total)
            for name, total in train_pass(self._ddp, self._optimizer, batches, loss, temperature=temperature).items()
        }
        denominator, tokens = sums.pop("denominator"), sums["response_tokens"]
        metrics = {name: total / (denominator if name == "pg_loss" else tokens) for name, total in sums.items()}
        difference = metrics.pop(DIFF, 0.0)
        if on_policy:
            metrics[DIFF] = difference
            # `not <=` also catches NaN.
            if not difference <= self._config.max_logprob_diff:
                raise MismatchError(
                    f"logprobs of trainer and rollout differ by {difference:.3g} on average over {tokens:.0f} tokens; "
                    f"trainer.max_logprob_diff allows {self._config.max_logprob_diff:g}"
                )
        self._scheduler.step(1)
        grad_norm = float(self._optimizer.step()[1])  # type: ignore[index] - Megatron's stub forgets the tuple
        if not math.isfinite(grad_norm):
            raise RunError(f"the gradient norm is {grad_norm}")
        learning_rate = self._optimizer.param_groups[0]["lr"]
        return metrics | {"response_tokens": tokens, "grad_norm": grad_norm, "lr": learning_rate}


def _likelihood(logprobs: Tensor, entropy: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    weights = batch.policy.weights
    loss = -(logprobs * weights).sum()
    return loss, {"nll": loss.detach(), "response_tokens": (weights > 0).sum()}


def _with_reference(batch: MicroBatch, logprobs: Tensor) -> MicroBatch:
    return dataclasses.replace(batch, policy=dataclasses.replace(batch.policy, reference_logprobs=logprobs))


def _batch_metrics(advantages: Advantages) -> dict[str, float]:
    return {
        "train/equal_reward_groups": advantages.num_equal_groups,
        "train/uncounted_samples": int((~advantages.counted).sum()),
        "train/skipped_minibatches": 0,
        "train/advantage_abs_mean": float(advantages.values.abs().mean()),
    }


def _merge(steps: list[dict[str, float]]) -> dict[str, float]:
    """Average over minibatches what each of them reported; the token count is summed, the rate is the last one."""
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for step in steps for name in step):
        values = [step[name] for step in steps if name in step]
        merged[f"train/{name}"] = sum(values) / len(values)
    if steps:
        merged["train/response_tokens"] = sum(step["response_tokens"] for step in steps)
        merged["train/lr"] = steps[-1]["lr"]
    return merged
