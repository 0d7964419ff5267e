"""Batches of asynchronous training: rollout waits for the trainer only where the staleness demands it."""

import asyncio
from collections import deque
from collections.abc import Iterator

from sestina.config.run import RunConfig
from sestina.controller.admission import Admission
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.ledger import Tally, num_tokens
from sestina.controller.offer import Offer
from sestina.controller.sample import Sample
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import StreamState
from sestina.controller.unfinished import KeptSample, keep, take_up
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import Version


class Stream(Admission[Offer, Sample]):
    """A `BatchSource` whose groups overlap the steps."""

    def __init__(self, config: RunConfig, feed: Feed, driver: RolloutDriver, stop: StopRequest) -> None:
        super().__init__(config, feed, driver)
        self._prompts, self._rollout, self._stop = feed, driver, stop
        self._changed: asyncio.Future[None] | None = None
        self._again: deque[GroupId] = deque()
        """Groups of a checkpoint that are to be started again, from what it keeps of them."""
        self._kept: dict[GroupId, dict[RequestId, KeptSample]] = {}

    async def roll_out(self, step: int) -> list[Sample] | None:
        """See `BatchSource.roll_out`."""
        if self._stop.asked:
            return None
        self._stop.on_ask = self._wake
        while not self._stop.asked:
            samples = self.take(step)
            if samples is not None:
                return samples
            self._changed = asyncio.get_running_loop().create_future()
            await self._rollout.watch(self._changed)
        self._rollout.abandon()
        await self._rollout.suspend(self._config.deadlines.stop_s)
        return None

    def waiting_for(self) -> str:
        """See `BatchSource.waiting_for`."""
        ended, running = self._buffer.num_ended, self._buffer.num_running
        return (
            f"{ended} groups ended of {self._batch_groups} for a batch, {running} open; {self._rollout.waiting_for()}"
        )

    async def make_way(self, offer: Offer) -> Offer:
        """See `BatchSource.make_way`; groups and held-out prompts share the instances."""
        return offer

    def state(self) -> StreamState:
        """See `BatchSource.state`; groups that were given up are lost already."""
        born = self._buffer.born
        begun = [sample for group in born if group in self._groups for sample in self._groups[group]]
        lost = sum(num_tokens(self._groups[group]) for group in self._given_up)
        return StreamState(
            kept_s=self._clock(),
            groups=tuple(born.items()),
            samples=(*(keep(sample) for sample in begun if sample.num_tokens), *self._waiting()),
            tally=Tally(
                generated=self._driver.generated_tokens,
                trained=self._ledger.trained,
                dropped=self._ledger.dropped + lost,
            ),
        )

    def restore(self, state: StreamState | None) -> None:
        """See `BatchSource.restore`; groups keep their age."""
        if state is None:
            return
        self._driver.generated_tokens = state.tally.generated
        self._ledger.restore(state.tally)
        for sample in state.samples:
            self._kept.setdefault(sample.id.group, {})[sample.id] = sample
        for group, version in state.groups:
            self._buffer.admit(group, version)
            self._restore_group(group)

    def forget(self, step: int) -> None:
        """See `BatchSource.forget`; the checkpoint itself keeps everything."""

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    @property
    def _num_again(self) -> int:
        return len(self._again)

    @property
    def _tokens_kept(self) -> int:
        return sum(len(part.tokens) for sample in self._waiting() for part in sample.parts)

    def _start(self, version: Version) -> None:
        if not self._again:
            super()._start(version)
            return
        group = self._again.popleft()
        self._begin(group, self._prompts.group(group), self._kept.pop(group, {}))

    def _restore_group(self, group: GroupId) -> None:
        kept = self._kept.get(group, {})
        if sum(sample.outcome is not None for sample in kept.values()) < self._config.algorithm.group_size:
            self._again.append(group)
            return
        samples = self._prompts.group(group).samples(self._clock())
        take_up({sample.id: sample for sample in samples}, self._kept.pop(group))
        self._groups[group] = samples
        self._ledger.end(samples)
        self._buffer.end(group)

    def _waiting(self) -> Iterator[KeptSample]:
        """Samples of groups that are to be started again."""
        return (sample for group in self._kept.values() for sample in group.values())
