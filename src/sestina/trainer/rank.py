"""What one trainer rank does when the controller gives an order; all ranks carry out every order together."""

import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from sestina.core.units import Version
from sestina.models.weights import read_weights, write_model
from sestina.trainer.backend import open_backend
from sestina.trainer.convert import exported_shapes
from sestina.trainer.groups import close_groups, open_groups
from sestina.trainer.job import TrainerJob
from sestina.trainer.policy import PolicyTrainer
from sestina.trainer.trainer import Trainer
from sestina.transport.messages import (
    CheckpointDone,
    JoinWeights,
    LoadCheckpoint,
    Message,
    PublishWeights,
    SaveCheckpoint,
    TrainBatch,
    TrainDone,
    TrainerReady,
    WeightsJoined,
    WeightsLoaded,
)
from sestina.weights.group import UpdateGroup
from sestina.weights.rendezvous import Rendezvous
from sestina.weights.update import buckets_of, layout_of, publish

STATE, MODEL = "trainer", "model"
"""Folders of a checkpoint: what the trainer continues from, and the model for everyone else."""


class TrainerRank:
    """Owns this rank's part of the trained model."""

    def __init__(self, job: TrainerJob, rendezvous: Rendezvous, *, index: int) -> None:
        self._job = job
        self._rendezvous = rendezvous
        self._first = index == 0
        backend = open_backend(job.trainer.device, index)
        open_groups(job.trainer, backend, rendezvous.store, rank=index, seed=job.seed, limit_s=job.train_s)
        self._trainer = Trainer(job.trainer, job.shape, backend, read_weights(job.model, job.shape))
        self._policy = PolicyTrainer(self._trainer, job.algorithm, max_tokens=job.max_new_tokens)
        dtype = getattr(torch, job.trainer.dtype)
        self._layout = layout_of(exported_shapes(job.shape), dtype, job.bucket_bytes)
        self._version: Version = 0
        self._updates: UpdateGroup | None = None

    def ready(self) -> TrainerReady:
        """Describe this rank to the controller, with the address where rollout ranks find the update group."""
        return TrainerReady(
            host=self._rendezvous.host,
            port=self._rendezvous.port,
            layout=self._layout,
            num_buckets=len(buckets_of(self._layout)),
        )

    def carry_out(self, order: Message) -> Message:
        """Do what is ordered and return the answer; raises what training, saving or the update group raise."""
        match order:
            case TrainBatch():
                return self._train(order)
            case PublishWeights():
                return self._publish(order.version)
            case JoinWeights():
                return self._join(order)
            case SaveCheckpoint():
                return self._save(Path(order.directory))
            case LoadCheckpoint():
                return self._load(Path(order.directory))
            case _:
                raise AssertionError(f"a trainer rank cannot carry out {type(order).__name__}")

    def close(self) -> None:
        """Leave the other trainer ranks; the last thing that is done."""
        close_groups()

    def _train(self, order: TrainBatch) -> TrainDone:
        metrics = self._policy.train(order.batch, temperature=order.temperature, version=self._version)
        self._version += 1
        return TrainDone(step=order.step, metrics=metrics)

    def _join(self, order: JoinWeights) -> WeightsJoined:
        if self._first:
            self._updates = UpdateGroup(
                self._rendezvous.store,
                rank=0,
                world_size=order.world_size,
                device=self._trainer.device,
                limit_s=self._job.weights_timeout_s,
            )
        return WeightsJoined()

    def _publish(self, version: Version) -> WeightsLoaded:
        assert version == self._version, f"asked to publish version {version}, the weights are {self._version}"
        start = time.monotonic()
        sent = 0
        if self._updates is not None:
            sent = publish(self._updates, self._layout, version, self._trainer.export())
        else:
            _exhaust(self._trainer.export())
        return WeightsLoaded(version=version, num_bytes=sent, seconds=time.monotonic() - start)

    def _save(self, directory: Path) -> CheckpointDone:
        start = time.monotonic()
        self._trainer.save(directory / STATE, self._version)
        if self._first:
            write_model(directory / MODEL, self._job.shape, self._trainer.export())
        else:
            _exhaust(self._trainer.export())
        return CheckpointDone(directory=str(directory), version=self._version, seconds=time.monotonic() - start)

    def _load(self, directory: Path) -> CheckpointDone:
        start = time.monotonic()
        self._version = self._trainer.load(directory / STATE)
        return CheckpointDone(directory=str(directory), version=self._version, seconds=time.monotonic() - start)


def _exhaust(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Take part in an export whose result another rank uses."""
    for _ in tensors:
        pass
