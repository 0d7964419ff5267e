"""Batches of asynchronous training: rollout waits for the trainer only where the staleness demands it.

gate admits a group -> driver rolls it out -> buffer keeps it -> the trainer takes the oldest that have ended
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol

from sestina.algorithms.config import DAPOConfig
from sestina.config.run import RunConfig
from sestina.controller.batch import teaches_nothing
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.ledger import Ledger, Tally, num_tokens
from sestina.controller.offer import Offer
from sestina.controller.sample import Sample
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import StreamState
from sestina.controller.unfinished import KeptSample, keep, take_up
from sestina.core.errors import RunError
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import Seconds, Version
from sestina.policies.staleness import (
    GateEvent,
    GroupDropped,
    GroupEnded,
    GroupsOffered,
    StalenessGate,
    StalenessLimits,
    VersionPublished,
)
from sestina.replay.buffer import ReplayBuffer

WINDOW_BATCHES, WINDOW = 4, 1024
"""Latest batches that are compared with what was generated, and responses at least."""

FUTILE_BATCHES = 16
"""Filtered groups in a row, in batches, after which no batch is expected to fill."""


class Started(Protocol):
    """A group that has been offered to the planner."""

    @property
    def samples(self) -> list[Sample]:
        """Ordered by (group, sample); they grow as their chunks end."""
        ...


class Overlapping(Protocol):
    """A driver whose batches overlap; see `RolloutDriver`."""

    version: Version
    overlaps: bool
    generated_tokens: int

    def start(
        self, offer: Offer, kept: Mapping[RequestId, KeptSample] | None, on_release: Callable[[], None]
    ) -> Started:
        """Begin a batch and leave it to itself; `on_release` is called when it is released."""
        ...

    def drop(self, group: GroupId) -> None:
        """Have a group end as soon as its chunks are given back."""
        ...


class Admission:
    """Which groups begin, and which make the next batch: all of asynchronous training but the waiting."""

    def __init__(
        self, config: RunConfig, feed: Feed, driver: Overlapping, clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        limits, algorithm = config.async_, config.algorithm
        self._config, self._feed, self._driver, self._clock = config, feed, driver, clock
        self._batch_groups = algorithm.batch_size // algorithm.group_size
        self._buffer = ReplayBuffer(
            batch_groups=self._batch_groups, max_staleness=limits.max_staleness, overdue=limits.overdue
        )
        self._ledger = Ledger(window=max(WINDOW_BATCHES * algorithm.batch_size, WINDOW), bias_alarm=limits.bias_alarm)
        self._gate: StalenessGate | None = None
        self._groups: dict[GroupId, list[Sample]] = {}
        """Started, and neither trained on nor dropped."""
        self._given_up: set[GroupId] = set()
        """Of these, the ones that were dropped before they ended."""
        self._again: deque[GroupId] = deque()
        """Groups of a checkpoint that are to be started again, from what it keeps of them."""
        self._kept: dict[GroupId, dict[RequestId, KeptSample]] = {}
        self._filters = isinstance(algorithm, DAPOConfig) and algorithm.dynamic_sampling
        self._futile = 0
        """Groups filtered since one was kept."""
        self._taken_s = self._tokens_per_s = 0.0
        driver.overlaps = True

    def take(self, step: int) -> list[Sample] | None:
        """Return the batch of a step, finished and rewarded; None: it has to wait. The first call lets groups begin."""
        if self._gate is None:
            self._open_gate(step)
        batch = self._buffer.take(self._driver.version)
        return None if batch is None else self._hand_over(step, batch)

    def metrics(self) -> dict[str, float]:
        """See `BatchSource.metrics`."""
        return self._ledger.metrics | {
            "async/groups_ended": float(self._buffer.num_ended),
            "async/groups_running": float(self._buffer.num_running),
            "async/groups_dropped": float(self._buffer.num_dropped),
            "async/groups_filtered": float(self._buffer.num_filtered),
            "perf/tokens_per_s": self._tokens_per_s,
        }

    def published(self, version: Version) -> None:
        """See `BatchSource.published`; what has grown too old makes room for others."""
        for group, ended in self._buffer.drop(version):
            if ended:
                self._ledger.drop(self._groups.pop(group))
                self._tell(GroupDropped())
            else:
                self._given_up.add(group)
                self._driver.drop(group)
            self._tell(GroupsOffered(count=1))
        self._tell(VersionPublished(version=version))

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

    def _open_gate(self, step: int) -> None:
        """Let begin as many groups as the steps that are left will train on."""
        limits, ended = self._config.async_, self._buffer.num_ended
        ahead = (limits.max_staleness + 1) * self._batch_groups
        bounds = StalenessLimits(
            max_staleness=limits.max_staleness,
            batch_groups=self._batch_groups,
            max_running=limits.max_running_groups or ahead,
        )
        self._gate = StalenessGate(bounds, version=self._driver.version, accepted=ended)
        steps = self._config.run.steps - step + 1
        self._taken_s = self._clock()
        self._tell(GroupsOffered(count=max(steps * self._batch_groups - ended, len(self._again))))

    def _tell(self, event: GateEvent) -> None:
        assert self._gate is not None, f"{event} before the first batch"
        for admit in self._gate.handle(event, self._clock()):
            for _ in range(admit.count):
                self._start(admit.version)

    def _start(self, version: Version) -> None:
        again = self._again.popleft() if self._again else None
        offer = self._feed.draw_group() if again is None else self._feed.group(again)
        [(group, _)] = offer.groups
        if again is None:
            self._buffer.admit(group, version)
        kept = self._kept.pop(group, {})
        self._groups[group] = self._driver.start(offer, kept, partial(self._ended, group)).samples

    def _ended(self, group: GroupId) -> None:
        samples = self._groups[group]
        given_up = group in self._given_up
        filtered = not given_up and self._filters and teaches_nothing(samples)
        # Those given up are counted too: the long ones are what a batch may come to lack.
        self._ledger.end(samples, filtered=filtered)
        accepted = not given_up and not filtered
        if given_up:
            self._given_up.discard(group)
        else:
            self._keep(group, accepted=accepted)
        if not accepted:
            self._ledger.drop(self._groups.pop(group))
        self._tell(GroupEnded(accepted=accepted))
        self._wake()

    def _keep(self, group: GroupId, *, accepted: bool) -> None:
        if accepted:
            self._futile = 0
            self._buffer.end(group)
            return
        self._futile += 1
        if self._futile > FUTILE_BATCHES * self._batch_groups:
            raise RunError(
                f"algorithm.dynamic_sampling: {self._futile} groups in a row had equal rewards, and the batch does not "
                "fill; prompts of another difficulty, a larger algorithm.group_size or dynamic_sampling=false help"
            )
        self._buffer.filter(group)
        self._tell(GroupsOffered(count=1))

    def _wake(self) -> None:
        """Tell whoever waits that a group has ended."""

    def _hand_over(self, step: int, batch: list[GroupId]) -> list[Sample]:
        samples = [sample for group in sorted(batch) for sample in self._groups.pop(group)]
        for sample in samples:
            sample.count_as(step)
        now = self._clock()
        self._taken_s, self._tokens_per_s = now, num_tokens(samples) / (now - self._taken_s)
        self._ledger.train(
            samples,
            self._driver.version,
            generated=self._driver.generated_tokens,
            under_way=sum(map(num_tokens, self._groups.values()))
            + sum(len(part.tokens) for sample in self._waiting() for part in sample.parts),
        )
        return samples

    def _restore_group(self, group: GroupId) -> None:
        kept = self._kept.get(group, {})
        if sum(sample.outcome is not None for sample in kept.values()) < self._config.algorithm.group_size:
            self._again.append(group)
            return
        samples = self._feed.group(group).samples(self._clock())
        take_up({sample.id: sample for sample in samples}, self._kept.pop(group))
        self._groups[group] = samples
        self._ledger.end(samples)
        self._buffer.end(group)

    def _waiting(self) -> Iterator[KeptSample]:
        """Samples of groups that are to be started again."""
        return (sample for group in self._kept.values() for sample in group.values())


class Stream(Admission):
    """A `BatchSource` whose groups overlap the steps."""

    def __init__(self, config: RunConfig, feed: Feed, driver: RolloutDriver, stop: StopRequest) -> None:
        super().__init__(config, feed, driver)
        self._rollout, self._stop = driver, stop
        self._changed: asyncio.Future[None] | None = None

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

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
