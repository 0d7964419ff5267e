"""One batch of known lengths, as a planner has it run on instances without engines."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sestina.analysis.fluid import FluidInstance, Running
from sestina.analysis.pace import Pace
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
from sestina.policies.planner import RolloutPlanner


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One batch as the journal has it."""

    instances: tuple[InstanceUp, ...]
    offer: BatchOffered
    lengths: Mapping[RequestId, int]


def makespan(planner: RolloutPlanner, work: Work, pace: Pace) -> Seconds:
    """Return how long a batch takes: from its offer to its last token; mutates the planner."""
    return _Rehearsal(planner, work, pace).run()


class _Rehearsal:
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
