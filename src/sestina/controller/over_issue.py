"""Synchronous batches from more groups than they need: what has not ended when a batch has, stops (partial rollout).

begin what was carried over, then new groups -> a batch has ended -> stop the others -> carry them over, or drop them
"""

import asyncio
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from sestina.config.run import RunConfig
from sestina.controller.admission import WINDOW, WINDOW_BATCHES
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.ledger import Ledger, Tally, num_tokens
from sestina.controller.offer import Offer
from sestina.controller.sample import Sample
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import StreamState
from sestina.controller.unfinished import KeptSample, keep
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import Version
from sestina.replay.buffer import ReplayBuffer


class OverIssue:
    """A `BatchSource`. Nothing is under way between steps; what is carried over waits with the tokens that it has."""

    def __init__(self, config: RunConfig, feed: Feed, driver: RolloutDriver, stop: StopRequest) -> None:
        limits, algorithm, rollout = config.async_, config.algorithm, config.rollout
        self._config, self._feed, self._driver, self._stop = config, feed, driver, stop
        self._batch_groups = algorithm.batch_size // algorithm.group_size
        self._issued = issued(rollout.over_issue, self._batch_groups)
        self._buffer = ReplayBuffer(
            batch_groups=self._batch_groups,
            max_staleness=limits.max_staleness,
            overdue=limits.overdue if rollout.stopped == "carry" else "drop",
        )
        self._ledger = Ledger(
            window=max(WINDOW_BATCHES * algorithm.batch_size, WINDOW),
            bias_alarm=limits.bias_alarm,
            remedy="rollout.stopped 'carry' or a smaller rollout.over_issue",
        )
        self._running: dict[GroupId, list[Sample]] = {}
        """Of this step: begun and not yet whole."""
        self._whole: dict[GroupId, list[Sample]] = {}
        """Of this step: finished and rewarded."""
        self._kept: dict[GroupId, dict[RequestId, KeptSample]] = {}
        """Of open groups that nothing runs of."""
        self._restored: set[GroupId] = set()
        """Begun by an earlier start of the run."""
        self._stopping = False
        self._changed: asyncio.Future[None] | None = None
        self._metrics: dict[str, float] = {}

    async def roll_out(self, step: int) -> list[Sample] | None:
        """See `BatchSource.roll_out`."""
        self._stop.on_ask = self._wake
        if self._stop.asked:
            return None
        began_s, generated = time.monotonic(), self._driver.generated_tokens
        surplus = self._begin(step)
        while not self._stop.asked:
            if (batch := self._buffer.take(self._driver.version)) is not None:
                await self._stop_others()
                samples = self._hand_over(step, batch, surplus)
                tokens = self._driver.generated_tokens - generated
                self._metrics |= {
                    "perf/rollout_tokens": float(tokens),
                    "perf/tokens_per_s": tokens / (time.monotonic() - began_s),
                }
                return samples
            await self._change()
        self._driver.abandon()
        await self._driver.suspend(self._config.deadlines.stop_s)
        return None

    def waiting_for(self) -> str:
        """See `BatchSource.waiting_for`."""
        ended = self._buffer.num_ended
        return f"{ended} groups ended of {self._batch_groups} for a batch; {self._driver.waiting_for()}"

    def metrics(self) -> dict[str, float]:
        """See `BatchSource.metrics`."""
        return self._ledger.metrics | self._metrics

    def published(self, version: Version) -> None:
        """See `BatchSource.published`; with `async.overdue` 'drop', what has grown too old is not carried on."""
        for group, _ in self._buffer.drop(version):
            self._ledger.dropped += _num_kept(self._kept.pop(group, {}).values())

    async def make_way(self, offer: Offer) -> Offer:
        """See `BatchSource.make_way`; between steps nothing is under way."""
        return offer

    def state(self) -> StreamState:
        """See `BatchSource.state`."""
        begun = (sample for group in self._groups() for sample in group if sample.num_tokens)
        return StreamState(
            kept_s=time.monotonic(),
            groups=tuple(self._buffer.born.items()),
            samples=(*map(keep, begun), *(sample for group in self._kept.values() for sample in group.values())),
            tally=Tally(
                generated=self._driver.generated_tokens, trained=self._ledger.trained, dropped=self._ledger.dropped
            ),
        )

    def restore(self, state: StreamState | None) -> None:
        """See `BatchSource.restore`; groups keep their age and their tokens."""
        if state is None:
            return
        self._driver.generated_tokens = state.tally.generated
        self._ledger.restore(state.tally)
        for group, version in state.groups:
            self._buffer.admit(group, version)
            self._kept[group] = {}
            self._restored.add(group)
        for sample in state.samples:
            self._kept[sample.id.group][sample.id] = sample

    def forget(self, step: int) -> None:
        """See `BatchSource.forget`; the checkpoint itself keeps everything."""

    def _begin(self, step: int) -> int:
        """Begin the groups of a step, those carried over first; returns how many more than a batch there are.

        No more are begun than the steps that are left will train on.
        """
        carried, self._kept = self._kept, {}
        for group, kept in carried.items():
            self._start(self._feed.group(group), kept)
            if group not in self._restored:
                for sample in self._group(group):
                    sample.restored_tokens = 0
        left = (self._config.run.steps - step + 1) * self._batch_groups
        for _ in range(min(self._issued, left) - len(carried)):
            offer = self._feed.draw_group()
            self._buffer.admit(offer.groups[0][0], self._driver.version)
            self._start(offer, {})
        return len(self._buffer.born) - self._batch_groups

    def _start(self, offer: Offer, kept: dict[RequestId, KeptSample]) -> None:
        [(group, _)] = offer.groups
        self._running[group] = []  # what was carried over whole is released within `start`
        samples = self._driver.start(offer, kept, partial(self._released, group)).samples
        (self._running if group in self._running else self._whole)[group] = samples

    def _released(self, group: GroupId) -> None:
        """A group is whole, or was stopped and all its chunks are back."""
        self._whole[group] = self._running.pop(group)
        if not self._stopping:
            self._buffer.end(group)
        self._wake()

    async def _stop_others(self) -> None:
        """Have everything given back that still runs."""
        self._stopping = True
        for group in list(self._running):
            self._driver.drop(group)
        while self._running:
            await self._change()
        self._stopping = False

    def _hand_over(self, step: int, batch: list[GroupId], surplus: int) -> list[Sample]:
        samples = [sample for group in sorted(batch) for sample in self._whole.pop(group)]
        for sample in samples:
            sample.count_as(step)
        dropped = self._put_aside()
        version = self._driver.version
        carried = sum(_num_kept(kept.values()) for kept in self._kept.values())
        generated = self._driver.generated_tokens
        self._ledger.end(samples)
        self._ledger.train(samples, version, generated=generated, under_way=carried)
        old = sum(span.num_tokens for sample in samples for span in sample.spans if span.version < version)
        self._metrics = {
            "rollout/over_issued": float(surplus),
            "rollout/carried": float(len(self._kept)),
            "rollout/carried_tokens": float(carried),
            "rollout/dropped_tokens": float(dropped),
            "rollout/off_policy_ratio": old / num_tokens(samples),
        }
        return samples

    def _put_aside(self) -> int:
        """Keep what was stopped for the next step, or drop it; returns the tokens dropped."""
        stopped, self._whole = self._whole, {}
        if self._config.rollout.stopped == "carry":
            self._kept = {
                group: {sample.id: _kept_of(sample) for sample in stopped[group] if sample.num_tokens}
                for group in self._buffer.born
            }
            self._buffer.reopen()
            return 0
        lost = 0
        for samples in stopped.values():
            self._ledger.end(samples)  # as far as they came: what a batch may come to lack
            lost += num_tokens(samples)
        self._ledger.dropped += lost
        self._buffer.clear()
        return lost

    async def _change(self) -> None:
        """Return when a group is released, or a stop is asked for."""
        self._changed = asyncio.get_running_loop().create_future()
        await self._driver.watch(self._changed)

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _group(self, group: GroupId) -> list[Sample]:
        return self._running[group] if group in self._running else self._whole[group]

    def _groups(self) -> Iterator[list[Sample]]:
        yield from self._running.values()
        yield from self._whole.values()


def _kept_of(sample: Sample) -> KeptSample:
    """A chunk that was given back before its first token is no part of the response."""
    return replace(keep(sample), parts=tuple(part for part in sample.parts if len(part.tokens)))


def _num_kept(samples: Iterable[KeptSample]) -> int:
    return sum(len(part.tokens) for sample in samples for part in sample.parts)


def issued(over_issue: float, batch_groups: int) -> int:
    """Return how many groups are begun for a batch of so many; 1.1 times 50 are 55, whatever floats make of it."""
    return math.ceil(round(over_issue * batch_groups, 6))
