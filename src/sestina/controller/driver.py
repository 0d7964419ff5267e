"""The real driver of the planner: carries out its commands, tells it what happened, writes both down.

offer -> Dispatch -> chunk runs -> ChunkFinished -> Reward -> SampleRewarded -> ReleaseBatch
"""

import asyncio
import time
from dataclasses import dataclass
from typing import assert_never

from sestina.controller.ranks import Ranks
from sestina.controller.sample import Sample
from sestina.core.errors import DeadlineError, EngineError
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.data.prompt import Prompt
from sestina.models.tokenizer import Tokenizer
from sestina.policies.events import (
    BatchOffered,
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    GroupSpec,
    InstanceUp,
    ReleaseBatch,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import RolloutPlanner
from sestina.rewards import messages as rewards
from sestina.rewards.pool import RewardPool
from sestina.telemetry.journal import Journal
from sestina.transport.messages import ChunkEnded, StartChunk

LOOK_S: Seconds = 1.0
"""How often a batch under way is looked at for progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A batch to roll out."""

    step: int
    groups: tuple[tuple[GroupId, Prompt], ...]
    lengths: tuple[tuple[int, ...], ...]
    """Of each group's responses in a recorded run; empty where there is none."""
    num_samples: int
    max_new_tokens: int
    temperature: float


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
    ) -> None:
        self._planner = planner
        self._pool = pool
        self._journal = journal
        self._tokenizer = tokenizer
        self._tasks = tasks
        self._stall_s = stall_s
        self._ranks = ranks
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

    async def roll_out(self, offer: Offer) -> list[Sample]:
        """Return the batch's samples, finished and rewarded, ordered by (group, sample).

        When it is cancelled the driver is at its end too: it ignores what still comes back. Raises DeadlineError when
        for `stall_s` no instance computed a token and nothing else happened either.
        """
        now = time.monotonic()
        self._samples = {sample.id: sample for sample in _samples(offer, now)}
        self._released = asyncio.get_running_loop().create_future()
        self._num_batches += 1
        groups = tuple(
            GroupSpec(
                group=group,
                prompt_tokens=len(prompt.tokens),
                num_samples=offer.num_samples,
                max_new_tokens=offer.max_new_tokens,
                lengths=lengths,
            )
            for (group, prompt), lengths in zip(offer.groups, offer.lengths, strict=True)
        )
        self._tell(BatchOffered(batch=self._num_batches, groups=groups))
        try:
            await self._watch(self._released)
        except asyncio.CancelledError:
            self._abandoned = True
            for task in self._scoring:
                task.cancel()
            raise
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

    def _carry_out(self, command: Command, now: Seconds) -> None:
        match command:
            case Dispatch():
                chunk = self._samples[command.request].start(command, now)
                self._ranks.send(self._ranks.layout.rollouts[command.instance], StartChunk(chunk=chunk))
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


def _samples(offer: Offer, now: Seconds) -> list[Sample]:
    return [
        Sample(
            id=RequestId(group, number),
            step=offer.step,
            prompt=prompt,
            max_new_tokens=offer.max_new_tokens,
            temperature=offer.temperature,
            offered_s=now,
        )
        for group, prompt in offer.groups
        for number in range(offer.num_samples)
    ]
