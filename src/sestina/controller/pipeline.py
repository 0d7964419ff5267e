"""Batches of pipelined training: while one trains, the next is rolled out (RhymeRL, section 3).

Weights reach the instances' buffers while chunks run; an instance loads them itself, with the first chunk that asks for
them. Every token is of the weights that its batch began with, or, if the response has migrated, of the next.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sestina.config.run import RunConfig
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.last_lengths import Answering, LastLengths
from sestina.controller.ledger import Tally, ages, num_tokens
from sestina.controller.offer import Offer
from sestina.controller.sample import Sample
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import StreamState
from sestina.controller.under_way import UnderWay
from sestina.controller.unfinished import KeptSample, keep
from sestina.core.ids import RequestId
from sestina.core.units import Seconds, Version
from sestina.policies.one_step_off import OneStepOff
from sestina.telemetry.traces import ChunkRow

_log = logging.getLogger(__name__)


class Pipeline:
    """A `BatchSource` that is one step ahead of the trainer."""

    def __init__(self, config: RunConfig, feed: Feed, driver: RolloutDriver, stop: StopRequest) -> None:
        self._config, self._feed, self._driver, self._stop = config, feed, driver, stop
        self._lengths = LastLengths(feed.known_lengths)
        self._off: OneStepOff | None = None
        self._open: dict[int, UnderWay] = {}
        """By step; not handed over."""
        self._kept: dict[RequestId, KeptSample] = {}
        self._changed: asyncio.Future[None] | None = None
        self._handed_s: Seconds = 0.0
        self._train_s: Seconds = 0.0
        self._metrics: dict[str, float] = {}
        driver.overlaps = True

    async def roll_out(self, step: int) -> list[Sample] | None:
        """See `BatchSource.roll_out`."""
        if self._off is None:
            self._begin(step)
        self._stop.on_ask = self._wake
        began_s = time.monotonic()
        while not self._stop.asked:
            self._offer()
            if self._open[step].released.done():
                return self._hand_over(step, began_s)
            self._changed = asyncio.get_running_loop().create_future()
            await self._driver.watch(self._changed)
        return None

    async def make_way(self, offer: Offer) -> Offer:
        """See `BatchSource.make_way`; what has begun ends first, since an evaluation wants newer weights."""
        for batch in self._open.values():
            await self._driver.watch(batch.released)
        return replace(offer, version=self._driver.version)

    def waiting_for(self) -> str:
        """See `BatchSource.waiting_for`."""
        return f"steps {', '.join(map(str, self._open))} open; {self._driver.waiting_for()}"

    def metrics(self) -> dict[str, float]:
        """See `BatchSource.metrics`."""
        return self._metrics

    def published(self, version: Version) -> None:
        """See `BatchSource.published`; what may begin with them begins when the next batch is asked for."""
        self._train_s = time.monotonic() - self._handed_s

    def state(self) -> StreamState:
        """See `BatchSource.state`."""
        begun = [sample for batch in self._open.values() for sample in batch.samples if sample.num_tokens]
        return StreamState(
            kept_s=time.monotonic(),
            groups=(),
            samples=(*map(keep, begun), *self._kept.values()),
            tally=Tally(generated=self._driver.generated_tokens),
            lengths=self._lengths.state(),
        )

    def restore(self, state: StreamState | None) -> None:
        """See `BatchSource.restore`; what was begun goes on with the weights of the checkpoint."""
        if state is None:
            return
        self._driver.generated_tokens = state.tally.generated
        self._kept = {sample.id: sample for sample in state.samples}
        self._lengths.restore(state.lengths)

    def forget(self, step: int) -> None:
        """See `BatchSource.forget`; the checkpoint itself keeps everything."""

    def _begin(self, step: int) -> None:
        run, rollout = self._config.run, self._config.rollout
        streaming = rollout.scheduler == "histopipe"
        self._off = OneStepOff(steps=run.steps, trained=step - 1, streaming=streaming)
        if streaming and not len(self._lengths):
            _log.warning(
                "rollout.scheduler 'histopipe': no prompt has a history yet; until the second epoch (%d prompts), or "
                "with rollout.history_from, each instance gets as many prompts as any other",
                self._feed.state().cursor.num_prompts,
            )

    def _offer(self) -> None:
        assert self._off is not None, "an offer before the first batch"
        for step in self._off.due(self._driver.version):
            offer = self._feed.of_step(step)
            offer = replace(
                offer,
                histories=self._lengths.of(prompt.id for _, prompt in offer.groups),
                beta=self._lengths.beta,
                version=self._driver.version,
                train_s=self._train_s,
            )
            groups = {group for group, _ in offer.groups}
            kept = {id: self._kept.pop(id) for id in list(self._kept) if id.group in groups}
            self._open[step] = self._driver.start(offer, kept, self._released)

    def _released(self) -> None:
        assert self._off is not None, "a batch ended that never began"
        self._off.rolled_out()
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _hand_over(self, step: int, began_s: Seconds) -> list[Sample]:
        samples = self._open.pop(step).samples
        self._metrics = pipeline_metrics(samples, self._driver.version)
        self._lengths.record(samples)
        before_s, self._handed_s = self._handed_s or began_s, time.monotonic()
        self._metrics["perf/tokens_per_s"] = num_tokens(samples) / max(1e-9, self._handed_s - before_s)
        return samples


class Placed(Answering, Protocol):
    """A response, and where its chunks ran."""

    @property
    def chunks(self) -> Sequence[ChunkRow]:
        """In order."""
        ...


def pipeline_metrics(samples: Sequence[Placed], version: Version) -> dict[str, float]:
    """Return a batch's ages and migrations; raises AssertionError when a token is more than one version old."""
    oldest = min(span.version for sample in samples for span in sample.spans)
    assert 0 <= version - oldest <= 1, f"tokens of version {oldest} in a batch that version {version} is trained on"
    ways = [{chunk.reason for chunk in sample.chunks} for sample in samples]
    intra, inter = (sum(way in reasons for reasons in ways) for way in ("intra-step", "inter-step"))
    return ages(samples, version) | {
        "rollout/migrated_intra_step": float(intra),
        "rollout/migrated_inter_step": float(inter),
        "rollout/migrated_ratio": (intra + inter) / len(samples),
    }
