"""Batches that were offered to the planner and are not released yet."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sestina.controller.sample import Sample
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """One of them."""

    samples: list[Sample]
    """Ordered by (group, sample); they grow as their chunks end."""
    released: asyncio.Future[None]
    """Done when every sample is finished and rewarded."""
    on_release: Callable[[], None] | None = None
    """Called then."""


class Batches:
    """All of them, their samples by id, and the groups of them that are to end early."""

    def __init__(self) -> None:
        self.samples: dict[RequestId, Sample] = {}
        self.dropped: set[GroupId] = set()
        self._open: dict[int, UnderWay] = {}
        self._last = 0

    def begin(self, samples: Iterable[Sample], on_release: Callable[[], None] | None) -> tuple[int, UnderWay]:
        """Add a batch; returns its number as well."""
        released = asyncio.get_running_loop().create_future()
        batch = UnderWay(samples=list(samples), released=released, on_release=on_release)
        self.samples |= {sample.id: sample for sample in batch.samples}
        self._last += 1
        self._open[self._last] = batch
        return self._last, batch

    def release(self, number: int) -> None:
        """Forget a batch that is finished and rewarded, and tell those who wait for it."""
        batch = self._open.pop(number)
        for sample in batch.samples:
            del self.samples[sample.id]
            self.dropped.discard(sample.id.group)
        batch.released.set_result(None)
        if batch.on_release is not None:
            batch.on_release()

    def running(self) -> list[tuple[RequestId, InstanceId]]:
        """Return which chunks are out, and where."""
        return [(id, sample.running) for id, sample in self.samples.items() if sample.running is not None]

    def waiting_for(self) -> str:
        """Say in a few words what they still need."""
        open_samples = [sample for sample in self.samples.values() if sample.outcome is None]
        if not open_samples:
            return "rollout: nothing left"
        longest = max(open_samples, key=lambda sample: sample.num_tokens)
        where = f" on instance {longest.chunks[-1].instance}" if longest.chunks else ""
        return (
            f"rollout: {len(open_samples)} of {len(self.samples)} responses left, "
            f"longest {longest.id} at {longest.num_tokens} tokens{where}"
        )
