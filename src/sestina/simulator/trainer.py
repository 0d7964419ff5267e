"""The trainer of an emulated world: one real rank in a thread of its own, since Megatron's CPU shim holds for a thread.

Every step is really taken. Of what it took, a share is counted: N trainer ranks in data parallel are assumed to divide
a batch perfectly and to add up gradients in no time.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from typing import TYPE_CHECKING, TypeVar

import torch

from sestina.core.errors import DeadlineError
from sestina.core.imports import importing
from sestina.core.units import Seconds, Version
from sestina.models.weights import read_weights
from sestina.rollout.meter import Meter
from sestina.trainer.job import TrainerJob
from sestina.transport.messages import SampleBatch

if TYPE_CHECKING:
    from sestina.trainer.policy import PolicyTrainer
    from sestina.trainer.trainer import Trainer

_T = TypeVar("_T")


class EmulatedTrainer:
    """Owns the trained model; one of them in a process at a time. Every method raises DeadlineError when it is late."""

    def __init__(self, job: TrainerJob, *, shares: int, meter: Meter) -> None:
        self._job, self._shares, self._meter = job, shares, meter
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trainer")
        self._late = False
        self._trainer, self._policy = self._take(lambda: _build(job), job.start_s, "to build its model")[0]

    def train(self, batch: SampleBatch, version: Version, *, temperature: float) -> tuple[dict[str, float], Seconds]:
        """Take the optimizer steps of a batch; returns their metrics, and a share's part of the time."""
        metrics, took_s = self._take(
            lambda: self._policy.train(batch, temperature=temperature, version=version), self._job.train_s, "to train"
        )
        return metrics, took_s / self._shares

    def weights(self) -> tuple[dict[str, torch.Tensor], Seconds]:
        """Return the weights under their Hugging Face names until the next step, and the time that one rank takes."""
        return self._take(lambda: dict(self._trainer.export()), self._job.weights_timeout_s, "to hand its weights over")

    def close(self) -> None:
        """Leave Megatron's groups, and end the thread; one that was late is not waited for again."""
        if self._late:
            self._thread.shutdown(wait=False, cancel_futures=True)
            return
        from sestina.trainer.groups import close_groups  # noqa: PLC0415 - brings Megatron

        self._take(close_groups, self._job.start_s, "to leave its groups")
        self._thread.shutdown()

    def _take(self, work: Callable[[], _T], limit_s: Seconds, what: str) -> tuple[_T, Seconds]:
        """Have the thread work; returns what comes of it, and what it took."""

        def metered() -> tuple[_T, Seconds]:
            began = self._meter()
            return work(), self._meter() - began

        try:
            return self._thread.submit(metered).result(limit_s)
        except LateError:
            self._late = True
            raise DeadlineError(f"the emulated trainer {what}", limit_s) from None


def _build(job: TrainerJob) -> "tuple[Trainer, PolicyTrainer]":
    with importing():
        import torch.distributed as dist  # noqa: PLC0415 - these bring Megatron, which takes seconds

        from sestina.trainer.backend import open_backend  # noqa: PLC0415
        from sestina.trainer.groups import open_groups  # noqa: PLC0415
        from sestina.trainer.policy import PolicyTrainer  # noqa: PLC0415
        from sestina.trainer.trainer import Trainer  # noqa: PLC0415

    config = dataclasses.replace(job.trainer, num_ranks=1)
    backend = open_backend(config.device, 0)
    open_groups(config, backend, dist.HashStore(), rank=0, seed=job.seed, limit_s=job.train_s)
    trainer = Trainer(config, job.shape, backend, read_weights(job.model, job.shape))
    return trainer, PolicyTrainer(trainer, job.algorithm, max_tokens=job.max_new_tokens)
