"""What a step would have taken under another scheduler: its own lengths, through the real planner.

Lengths and instances are the journal's, the pace is fitted to the step's own chunks. How much a resumed chunk prefills
is taken from the run too, and is everything where a run has none. The run's own scheduler goes through the same model,
so that its error stands beside what it foretells.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sestina.analysis.curves import origin_of
from sestina.analysis.fluid import FluidInstance, Running
from sestina.analysis.pace import Pace, pace_of
from sestina.analysis.run import Run
from sestina.controller.plan import planner_of
from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.core.units import InstanceId, Seconds
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
from sestina.policies.planner import RolloutPlanner, SchedulerKind
from sestina.telemetry.journal import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One batch as the journal has it."""

    instances: tuple[InstanceUp, ...]
    offer: BatchOffered
    lengths: Mapping[RequestId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """Seconds from the offer to the last token of a step."""

    step: int
    scheduler: SchedulerKind
    """The run's own."""
    measured_s: Seconds
    modelled_s: Seconds
    """Under the run's own scheduler."""
    other: SchedulerKind
    other_s: Seconds

    @property
    def error(self) -> float:
        """Return by which share the model is off."""
        return self.modelled_s / self.measured_s - 1


def counterfactual(run: Run, step: int, other: SchedulerKind = "context") -> Counterfactual:
    """Replay a step's lengths under another scheduler; raises DataError when the journal lacks the step's batch."""
    requests, chunks = run.rows_of(step)
    work, pace = work_of(run, step), pace_of(chunks)
    own = run.config.rollout.scheduler
    return Counterfactual(
        step=step,
        scheduler=own,
        measured_s=max(row.finished_s for row in requests) - origin_of(requests),
        modelled_s=makespan(planner_of(run.config), work, pace),
        other=other,
        other_s=makespan(_planner(run, other), work, pace),
    )


def work_of(run: Run, step: int) -> Work:
    """Return the batch of a step; raises DataError when the journal lacks it, or when steps overlap."""
    first = run.rows_of(step)[0][0]
    for segment in run.journal():
        for entry in segment.entries:
            match entry.event:
                case BatchOffered(groups=groups, begun=()) if any(each.group == first.group for each in groups):
                    if run.config.run.mode == "sync":
                        return _work(segment, entry.event)
                case _:
                    pass
    raise DataError(f"{run.path}: its journal holds no batch that is step {step} alone, from its beginning")


def makespan(planner: RolloutPlanner, work: Work, pace: Pace) -> Seconds:
    """Return how long a batch takes: from its offer to its last token; mutates the planner."""
    return _Replay(planner, work, pace).run()


def _planner(run: Run, kind: SchedulerKind) -> RolloutPlanner:
    return planner_of(replace(run.config, rollout=replace(run.config.rollout, scheduler=kind)))


def _work(segment: Segment, offer: BatchOffered) -> Work:
    wanted = {each.group for each in offer.groups}
    lengths: dict[RequestId, int] = {}
    ups: list[InstanceUp] = []
    for entry in segment.entries:
        match entry.event:
            case InstanceUp():
                ups.append(entry.event)
            case ChunkFinished(request=request, produced_tokens=tokens) if request.group in wanted:
                lengths[request] = lengths.get(request, 0) + tokens
            case _:
                pass
    return Work(instances=tuple(ups), offer=offer, lengths=lengths)


class _Replay:
    """The planner, and instances that take what it says."""

    def __init__(self, planner: RolloutPlanner, work: Work, pace: Pace) -> None:
        self._planner, self._work, self._pace = planner, work, pace
        self._instances: dict[InstanceId, FluidInstance] = {}
        self._agenda: list[tuple[Seconds, int, Callable[[Seconds], None]]] = []
        self._tickets = itertools.count()
        self._grown: dict[RequestId, int] = {}
        self._told: dict[RequestId, int] = {}
        """Tokens dispatched, and those the planner knows of."""
        self._prompts = {each.group: each.prompt_tokens for each in work.offer.groups}
        self._last_s: Seconds = 0.0
        self._released = False

    def run(self) -> Seconds:
        for up in self._work.instances:
            self._instances[up.instance] = FluidInstance(
                self._pace, kv_capacity_tokens=up.kv_capacity_tokens, max_running=up.max_running
            )
        self._tell([*self._work.instances, self._work.offer], 0.0)
        while self._agenda and not self._released:
            at, _, happening = heapq.heappop(self._agenda)
            happening(at)
        return self._last_s

    def _at(self, at: Seconds, happening: Callable[[Seconds], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._tickets), happening))

    def _tell(self, events: Sequence[Event], now: Seconds) -> None:
        queue = deque(events)
        while queue:
            for command in self._planner.handle(queue.popleft(), now):
                queue.extend(self._obey(command, now))

    def _obey(self, command: Command, now: Seconds) -> Sequence[Event]:
        match command:
            case Dispatch():
                self._at(now + self._pace.message_s, lambda at: self._arrive(command, at))
            case Reward(request=request):
                return [SampleRewarded(request=request)]  # rewards come beside decoding, and are no part of this
            case ReleaseBatch():
                self._released = True
        return []

    def _arrive(self, command: Dispatch, now: Seconds) -> None:
        request, grown = command.request, self._grown.get(command.request, 0)
        context = self._prompts[request.group] + grown
        share = self._pace.resumed_share if grown else self._pace.first_share
        tokens = min(command.max_tokens, self._work.lengths[request] - grown)
        chunk = Running(request=request, context_tokens=context, tokens=tokens, prefill_tokens=share * context)
        self._grown[request] = grown + tokens
        self._instances[command.instance].submit(chunk, now)
        self._foretell(command.instance)

    def _foretell(self, number: InstanceId) -> None:
        instance = self._instances[number]
        if (end_s := instance.next_s()) is not None:
            version = instance.version
            self._at(end_s, lambda at: self._end(number, version, at))

    def _end(self, number: InstanceId, version: int, now: Seconds) -> None:
        instance = self._instances[number]
        if instance.version != version:
            return
        ended = instance.take(now)
        self._foretell(number)
        if ended:
            self._last_s = max(self._last_s, now)
            self._at(now + self._pace.message_s, lambda at: self._tell([self._finished(number, c) for c in ended], at))

    def _finished(self, number: InstanceId, chunk: Running) -> ChunkFinished:
        request = chunk.request
        produced = self._grown[request] - self._told.get(request, 0)
        self._told[request] = self._grown[request]
        done = self._grown[request] == self._work.lengths[request]
        return ChunkFinished(request=request, instance=number, produced_tokens=produced, done=done)
