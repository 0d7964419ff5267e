"""The real driver of the planner: carries out its commands, tells it what happened, writes both down.

offer -> Dispatch -> chunk runs -> ChunkFinished -> Reward -> SampleRewarded -> ReleaseBatch
                               -> TurnEnded -> Observe -> Observed -> Dispatch
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from sestina.controller.foretell import Foretelling
from sestina.controller.offer import Offer
from sestina.controller.on_the_way import OnTheWay
from sestina.controller.ranks import Ranks
from sestina.controller.sample import Sample
from sestina.controller.scoring import Scoring
from sestina.controller.turns import Turns
from sestina.controller.under_way import Batches, UnderWay
from sestina.controller.unfinished import KeptSample, take_up
from sestina.core.errors import DeadlineError, EngineError
from sestina.core.ids import EVAL_GROUPS, GroupId, RequestId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.models.tokenizer import Tokenizer
from sestina.policies.events import (
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    InstanceUp,
    KvReport,
    KvReported,
    Observe,
    ReleaseBatch,
    Reward,
    SampleRewarded,
    TurnEnded,
)
from sestina.policies.planner import RolloutPlanner
from sestina.rewards.pool import RewardPool
from sestina.telemetry.journal import Journal
from sestina.transport.messages import AbortChunks, ChunkEnded, LoadReport, StartChunk

_log = logging.getLogger(__name__)
LOOK_S: Seconds = 1.0
"""How often a batch under way is looked at for progress."""
SUSPEND_S: Seconds = 0.02
"""How often chunks that are to come back are counted."""


class RolloutDriver:
    """One owner: the controller's event loop. Batches may overlap."""

    def __init__(
        self,
        planner: RolloutPlanner,
        *,
        ranks: Ranks,
        pool: RewardPool,
        journal: Journal,
        tokenizer: Tokenizer,
        tasks: asyncio.TaskGroup,
        stall_s: Seconds,
        on_dispatch: Callable[[InstanceId, Sample], None] = lambda *_: None,
        foretell: bool = False,
        turns: Turns | None = None,
    ) -> None:
        """`on_dispatch` is told of every chunk that leaves; `foretell`: tell the instances what comes next.

        `turns`: what answers between turns; None when the responses have none.
        """
        self._planner = planner
        self._journal = journal
        self._stall_s = stall_s + (0.0 if turns is None else turns.timeout_s)
        self._foretelling = Foretelling(planner, ranks) if foretell else None
        self._ranks = ranks
        self._on_dispatch = on_dispatch
        ranks.on_chunk, ranks.on_load = self.chunk_ended, self.load_reported
        self._on_the_way = OnTheWay()
        self._batches = Batches()
        self._num_events = self.generated_tokens = 0
        self._abandoned = self._telling = False
        self._events: deque[Event] = deque()
        self._scoring = Scoring(pool, turns, tokenizer=tokenizer, tasks=tasks, tell=self._tell)
        self._ahead_s: dict[InstanceId, Seconds] = {}
        """Controller's clock minus each instance's, by the fastest message so far."""
        self.version: Version = 0
        """The weights every chunk must come from, or, while they are being published, those before."""
        self.overlaps = False
        """Whether chunks run while weights are published."""

    def instance_up(self, up: InstanceUp) -> None:
        """An instance is ready for chunks."""
        self._tell(up)

    async def roll_out(self, offer: Offer, kept: Mapping[RequestId, KeptSample] | None = None) -> list[Sample]:
        """Return the batch's samples, finished and rewarded, ordered by (group, sample).

        `kept`: what an earlier start of the run has made of some of them. When it is cancelled the driver is at its
        end too, and only `suspend` may follow. Raises DeadlineError as `watch`.
        """
        batch = self.start(offer, kept)
        try:
            await self.watch(batch.released)
        except asyncio.CancelledError:
            self.abandon()
            raise
        return batch.samples

    def start(
        self,
        offer: Offer,
        kept: Mapping[RequestId, KeptSample] | None = None,
        on_release: Callable[[], None] | None = None,
    ) -> UnderWay:
        """Begin a batch as `roll_out` does, and leave it to itself; `on_release` is called when it is released."""
        number, batch = self._batches.begin(offer.samples(time.monotonic()), on_release)
        begun = take_up({sample.id: sample for sample in batch.samples}, kept or {})
        self._tell(offer.event(number, begun))
        return batch

    def drop(self, group: GroupId) -> None:
        """Have a group end as soon as its chunks are given back; its samples are then neither whole nor rewarded."""
        self._batches.dropped.add(group)
        self._abort((id, instance) for id, instance in self._batches.running() if id.group == group)

    def abandon(self) -> None:
        """Leave every batch as it is: what comes of it is no longer acted on."""
        self._abandoned = True
        self._scoring.cancel()

    async def suspend(self, limit_s: Seconds) -> list[Sample]:
        """Have the instances give back what they run; returns the batch's samples as far as they have come.

        A chunk that is not back within `limit_s` is lost, and will be generated again.
        """
        self._abort(self._batches.running())
        deadline = time.monotonic() + limit_s
        while (late := self._batches.running()) and time.monotonic() < deadline:
            await asyncio.sleep(SUSPEND_S)
        if late:
            _log.warning("%d chunks were not given back within %g s, among them %s", len(late), limit_s, late[0][0])
        return list(self._batches.samples.values())

    def chunk_ended(self, message: ChunkEnded) -> None:
        """A chunk came back from an instance; raises EngineError when other weights produced it."""
        now, result = time.monotonic(), message.result
        if self.version - result.version not in ((0, 1) if self.overlaps else (0,)):
            raise EngineError(
                f"request {result.id}: instance {message.instance} decoded with weights of version {result.version}, "
                f"the current version is {self.version}"
            )
        ahead_s = min(self._ahead_s.get(message.instance, float("inf")), now - message.clock_s)
        self._ahead_s[message.instance] = ahead_s
        self._batches.samples[result.id].absorb(result, ahead_s=ahead_s, now=now)
        if result.id.group < EVAL_GROUPS:
            self.generated_tokens += len(result.tokens)
        instance, produced = message.instance, len(result.tokens)
        kv = self._on_the_way.report(instance, message.kv)
        if result.finish == "turn":
            self._tell(TurnEnded(request=result.id, instance=instance, produced_tokens=produced, kv=kv))
            return
        done = result.finish in ("stop", "length") or result.id.group in self._batches.dropped
        self._end_chunk(result.id, instance, produced, done=done, kv=kv)

    def load_reported(self, message: LoadReport) -> None:
        """An instance says how it is; the planner hears of it where that is news to it."""
        kv = self._on_the_way.report(message.instance, message.load.kv)
        if self._planner.is_news(message.instance, kv):
            self._tell(KvReported(instance=message.instance, kv=kv))

    def _end_chunk(
        self,
        request: RequestId,
        instance: InstanceId,
        produced_tokens: int,
        *,
        done: bool,
        kv: KvReport | None = None,
    ) -> None:
        event = ChunkFinished(request=request, instance=instance, produced_tokens=produced_tokens, done=done, kv=kv)
        self._tell(event)

    def waiting_for(self) -> str:
        """Say in a few words what the batches still need."""
        return self._batches.waiting_for()

    def _abort(self, running: Iterable[tuple[RequestId, InstanceId]]) -> None:
        """Have chunks given back; a rank takes a step for each message."""
        by_instance: dict[InstanceId, list[RequestId]] = {}
        for id, instance in running:
            by_instance.setdefault(instance, []).append(id)
        for instance, ids in by_instance.items():
            self._ranks.send(self._ranks.layout.rollouts[instance], AbortChunks(ids=tuple(ids)))

    @property
    def engine_restarts(self) -> int:
        """Servers that were lost and started again since the run began, as last reported."""
        return sum(report.load.restarts for report in self._ranks.loads.values())

    async def watch(self, awaited: "asyncio.Future[Any]") -> None:
        """Return when `awaited` is done.

        Raises DeadlineError when for `stall_s` no instance computed a token and nothing else happened either.
        """
        seen, moved_s = self._work_done(), time.monotonic()
        while not awaited.done():
            await asyncio.wait([awaited], timeout=LOOK_S)
            if (done := self._work_done()) != seen:
                seen, moved_s = done, time.monotonic()
            elif time.monotonic() - moved_s > self._stall_s:
                raise DeadlineError(f"progress: {self.waiting_for()}", self._stall_s)

    def _work_done(self) -> tuple[int, int]:
        """Return two numbers of which one grows while anything goes on: events, and steps of the engines."""
        return self._num_events, sum(report.load.steps for report in self._ranks.loads.values())

    def _tell(self, event: Event) -> None:
        """Tell the planner, and what follows from its answer after that, in order."""
        self._events.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._events and not self._abandoned:
                self._handle(self._events.popleft())
        finally:
            self._telling = False

    def _handle(self, event: Event) -> None:
        self._num_events += 1
        now = time.monotonic()
        commands = self._planner.handle(event, now)
        self._journal.record(event, now, commands)
        for command in commands:
            self._carry_out(command, now)
        if self._foretelling is not None:
            self._foretelling.look(now)

    def _carry_out(self, command: Command, now: Seconds) -> None:
        match command:
            case Dispatch() if command.request.group in self._batches.dropped:
                self._end_chunk(command.request, command.instance, 0, done=True)
            case Dispatch():
                sample = self._batches.samples[command.request]
                message = StartChunk(chunk=sample.start(command, now), version=sample.least_version)
                self._ranks.send(self._ranks.layout.rollouts[command.instance], message)
                self._on_the_way.send(command.instance, command.request)
                self._on_dispatch(command.instance, sample)
            case Reward() if command.request.group in self._batches.dropped:
                self._tell(SampleRewarded(request=command.request))
            case Observe():
                self._scoring.observe(self._batches.samples[command.request])
            case Reward() if self._batches.samples[command.request].outcome is not None:  # its environment has failed
                self._tell(SampleRewarded(request=command.request))
            case Reward():
                self._scoring.reward(self._batches.samples[command.request])
            case ReleaseBatch():
                self._batches.release(command.batch)
            case _:
                assert_never(command)
