"""The real driver of the planner: carries out its commands, tells it what happened, writes both down.

offer -> Dispatch -> chunk runs -> ChunkFinished -> Reward -> SampleRewarded -> ReleaseBatch
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import assert_never

from sestina.controller.offer import Offer
from sestina.controller.ranks import Ranks
from sestina.controller.sample import Sample
from sestina.controller.unfinished import KeptSample, take_up
from sestina.core.errors import DeadlineError, EngineError
from sestina.core.ids import RequestId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.models.tokenizer import Tokenizer
from sestina.policies.events import (
    BatchOffered,
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    InstanceUp,
    ReleaseBatch,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import RolloutPlanner
from sestina.rewards import messages as rewards
from sestina.rewards.pool import RewardPool
from sestina.telemetry.journal import Journal
from sestina.transport.messages import AbortChunks, ChunkEnded, StartChunk, UpcomingChunks

_log = logging.getLogger(__name__)
LOOK_S: Seconds = 1.0
"""How often a batch under way is looked at for progress."""
FORETELL_S: Seconds = 0.05
"""How often instances with a pool of keys and values are told what comes next, at most."""
FORETOLD = 8
"""Requests that come next, for each instance."""
SUSPEND_S: Seconds = 0.02
"""How often chunks that are to come back are counted."""


class RolloutDriver:
    """One owner: the controller's event loop. At most one batch at a time."""

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
    ) -> None:
        """`on_dispatch` is told of every chunk that leaves for an instance; `foretell`: so are instances of the next."""
        self._planner = planner
        self._pool = pool
        self._journal = journal
        self._tokenizer = tokenizer
        self._tasks = tasks
        self._stall_s = stall_s
        self._foretell_at_s: Seconds = 0.0 if foretell else float("inf")
        self._ranks = ranks
        self._on_dispatch = on_dispatch
        ranks.on_chunk = self.chunk_ended
        self._samples: dict[RequestId, Sample] = {}
        self._released: asyncio.Future[None] | None = None
        self._num_batches = self._num_events = 0
        self._abandoned = False
        self._scoring: set[asyncio.Task[None]] = set()
        self._ahead_s: dict[InstanceId, Seconds] = {}
        """Controller's clock minus each instance's, by the fastest message so far."""
        self.version: Version = 0
        """The weights every chunk must come from."""

    def instance_up(self, up: InstanceUp) -> None:
        """An instance is ready for chunks."""
        self._tell(up)

    async def roll_out(self, offer: Offer, kept: Mapping[RequestId, KeptSample] | None = None) -> list[Sample]:
        """Return the batch's samples, finished and rewarded, ordered by (group, sample).

        `kept`: what an earlier start of the run has made of some of them. When it is cancelled the driver is at its
        end too, and only `suspend` may follow. Raises DeadlineError when
        for `stall_s` no instance computed a token and nothing else happened either.
        """
        now = time.monotonic()
        self._samples = {sample.id: sample for sample in offer.samples(now)}
        self._released = asyncio.get_running_loop().create_future()
        self._num_batches += 1
        begun = take_up(self._samples, kept or {})
        self._tell(BatchOffered(batch=self._num_batches, groups=offer.specs(), begun=begun))
        try:
            await self._watch(self._released)
        except asyncio.CancelledError:
            self._abandoned = True
            for task in self._scoring:
                task.cancel()
            raise
        return list(self._samples.values())

    async def suspend(self, limit_s: Seconds) -> list[Sample]:
        """Have the instances give back what they run; returns the batch's samples as far as they have come.

        A chunk that is not back within `limit_s` is lost, and will be generated again.
        """
        running: dict[InstanceId, list[RequestId]] = {}
        for id, instance in self._running():
            running.setdefault(instance, []).append(id)
        for instance, ids in running.items():
            self._ranks.send(self._ranks.layout.rollouts[instance], AbortChunks(ids=tuple(ids)))
        deadline = time.monotonic() + limit_s
        while (late := self._running()) and time.monotonic() < deadline:
            await asyncio.sleep(SUSPEND_S)
        if late:
            _log.warning("%d chunks were not given back within %g s, among them %s", len(late), limit_s, late[0][0])
        return list(self._samples.values())

    def chunk_ended(self, message: ChunkEnded) -> None:
        """A chunk came back from an instance; raises EngineError when other weights produced it."""
        now, result = time.monotonic(), message.result
        if result.version != self.version:
            raise EngineError(
                f"request {result.id}: instance {message.instance} decoded with weights of version {result.version}, "
                f"the current version is {self.version}"
            )
        ahead_s = min(self._ahead_s.get(message.instance, float("inf")), now - message.clock_s)
        self._ahead_s[message.instance] = ahead_s
        self._samples[result.id].absorb(result, ahead_s=ahead_s, now=now)
        self._tell(
            ChunkFinished(
                request=result.id,
                instance=message.instance,
                produced_tokens=len(result.tokens),
                done=result.finish in ("stop", "length"),
            )
        )

    def waiting_for(self) -> str:
        """Say in a few words what the batch still needs."""
        open_samples = [sample for sample in self._samples.values() if sample.outcome is None]
        if not open_samples:
            return "rollout: nothing left"
        longest = max(open_samples, key=lambda sample: sample.num_tokens)
        where = f" on instance {longest.chunks[-1].instance}" if longest.chunks else ""
        return (
            f"rollout: {len(open_samples)} of {len(self._samples)} responses left, "
            f"longest {longest.id} at {longest.num_tokens} tokens{where}"
        )

    def _running(self) -> list[tuple[RequestId, InstanceId]]:
        return [(id, sample.running) for id, sample in self._samples.items() if sample.running is not None]

    @property
    def engine_restarts(self) -> int:
        """Servers that were lost and started again since the run began, as last reported."""
        return sum(report.load.restarts for report in self._ranks.loads.values())

    async def _watch(self, released: asyncio.Future[None]) -> None:
        seen, moved_s = self._work_done(), time.monotonic()
        while not released.done():
            await asyncio.wait([released], timeout=LOOK_S)
            if (done := self._work_done()) != seen:
                seen, moved_s = done, time.monotonic()
            elif time.monotonic() - moved_s > self._stall_s:
                raise DeadlineError(f"progress: {self.waiting_for()}", self._stall_s)

    def _work_done(self) -> tuple[int, int]:
        """Return two numbers of which one grows while anything goes on: events, and steps of the engines."""
        return self._num_events, sum(report.load.steps for report in self._ranks.loads.values())

    def _tell(self, event: Event) -> None:
        if self._abandoned:
            return
        self._num_events += 1
        now = time.monotonic()
        commands = self._planner.handle(event, now)
        self._journal.record(event, now, commands)
        for command in commands:
            self._carry_out(command, now)
        if now >= self._foretell_at_s:
            self._foretell(now)

    def _foretell(self, now: Seconds) -> None:
        self._foretell_at_s = now + FORETELL_S
        rollouts = self._ranks.layout.rollouts
        upcoming = self._planner.upcoming(FORETOLD * len(rollouts))
        ids = tuple(entry.id for entry in upcoming)
        for instance, rank in enumerate(rollouts):
            near = tuple(entry.id for entry in upcoming if entry.instance == instance)
            self._ranks.send(rank, UpcomingChunks(ids=ids, near=near))

    def _carry_out(self, command: Command, now: Seconds) -> None:
        match command:
            case Dispatch():
                chunk = self._samples[command.request].start(command, now)
                self._ranks.send(self._ranks.layout.rollouts[command.instance], StartChunk(chunk=chunk))
                self._on_dispatch(command.instance, self._samples[command.request])
            case Reward():
                task = self._tasks.create_task(self._score(self._samples[command.request]))
                self._scoring.add(task)
                task.add_done_callback(self._scoring.discard)
            case ReleaseBatch():
                assert self._released is not None, "a batch was released that nobody offered"
                self._released.set_result(None)
            case _:
                assert_never(command)

    async def _score(self, sample: Sample) -> None:
        tokens = sample.tokens
        text = self._tokenizer.decode(tokens)
        prompt = sample.prompt
        sample.outcome = await self._pool.score(
            rewards.Sample(prompt=prompt.text, response=text, label=prompt.label, meta=prompt.meta)
        )
        sample.rewarded_s = time.monotonic()
        self._tell(SampleRewarded(request=sample.id))
