"""A rollout instance as a fluid: between two events all that it runs advances together, in closed form.

Requests of one class of acceptance get the same number of tokens in every step. Each class counts what one of its
requests has got since the start, and a heap holds the counts at which chunks end; so a step is never taken, whatever
the number of requests. What an engine does at its boundaries is that of `rollout/batcher.py`: requests are admitted in
order of arrival while slots and room last, a share of it left free; when the next step has no room, the request
admitted last gives its room up, waits in front and computes its tokens again. Prefill stops the others.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from sestina.core.errors import RunError
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId, Seconds
from sestina.rollout.batcher import WATERMARK
from sestina.simulator.acceptance import Drafting
from sestina.simulator.chunk import Chunk
from sestina.simulator.cost.span import StepLines
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.prefixes import IdlePrefixes
from sestina.simulator.resume import Resume

_LEAST = 1e-9
"""Tokens that rounding may leave of a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidLimits:
    """What an instance can hold."""

    kv_capacity_tokens: int
    max_running: int


class _Segment(NamedTuple):
    """From one boundary to the next event: nothing changes but time and counts."""

    lines: StepLines
    length: int
    """Index into `Drafting.lengths`."""
    growth: float
    """Tokens that a step adds, of all requests."""
    steps: int
    """To the event at its end."""
    ends_s: Seconds


class FluidInstance:
    """One instance; told the time, it never asks."""

    def __init__(
        self, instance: InstanceId, limits: FluidLimits, cost: EngineCost, drafting: Drafting, resume: Resume
    ) -> None:
        self.id = instance
        self.limits = limits
        self.held_tokens = 0.0
        """Keys and values of those that run; a group's prompt counts once."""
        self.peak_tokens = 0.0
        """The most that it has held."""
        self._cost, self._drafting, self._resume = cost, drafting, resume
        self._watermark = int(limits.kv_capacity_tokens * WATERMARK)
        self._at_s: Seconds = 0.0
        """The boundary that the state is of; it may lie ahead of the world's time."""
        self._waiting: deque[Chunk] = deque()
        self._running: dict[RequestId, Chunk] = {}
        """In order of admission."""
        self._members: dict[GroupId, int] = {}
        """Requests that run, by group."""
        self._read_tokens = 0.0
        """Contexts of all that run, prompts counted for each."""
        classes = len(drafting.siblings)
        self._got = [0.0] * classes
        """Tokens that a request of each class has got since the start."""
        self._counts = [0] * classes
        self._ends: list[list[tuple[float, int, Chunk]]] = [[] for _ in range(classes)]
        self._steps = self._drafts = 0
        """Steps taken, and draft tokens of a request that was in all of them."""
        self._num_tickets = 0
        self._prefixes = IdlePrefixes()
        self._segment: _Segment | None = None
        self._moves: list[tuple[Chunk, int]] = []

    @property
    def num_running(self) -> int:
        """Requests that decode."""
        return len(self._running)

    def submit(self, chunk: Chunk) -> None:
        """A chunk lies at the door; `settle` lets it in."""
        self._waiting.append(chunk)

    def reclass(self, chunk: Chunk, number: int) -> None:
        """A chunk that runs here is of another class from the next boundary on; `settle` does it."""
        self._moves.append((chunk, number))

    def settle(self, now: Seconds) -> Seconds | None:
        """Take in what has come by `now`, at the first boundary from then on.

        Returns when the next event is due; None when there is none.
        """
        segment = self._segment
        if segment is not None and now < segment.ends_s:
            if not self._moves and not (self._waiting and self._fits(self._waiting[0])):
                return segment.ends_s
            steps = segment.lines.steps_for(now - self._at_s, self._read_tokens, segment.growth)
            if steps >= segment.steps:
                return segment.ends_s
            self._run(segment, steps)
        elif segment is not None and segment.steps:
            return segment.ends_s  # due at this instant, and `finish` will be asked
        elif not self._running:
            self._at_s = max(self._at_s, now)
        for chunk, number in self._moves:
            self._change_class(chunk, number)
        self._moves.clear()
        self._admit()
        self._segment = self._plan()
        return self._segment and self._segment.ends_s

    def finish(self) -> list[Chunk]:
        """Go to the event that is due; returns the chunks that end there, in the order of their admission."""
        assert self._segment is not None, f"instance {self.id} has no event"
        self._run(self._segment, self._segment.steps)
        self._segment = None
        ended: list[Chunk] = []
        for heap, got in zip(self._ends, self._got, strict=True):
            while heap and (heap[0][0] <= got + _LEAST or heap[0][2].ticket != heap[0][1]):
                end, ticket, chunk = heappop(heap)
                if chunk.ticket == ticket and end <= got + _LEAST:
                    ended.append(chunk)
        for chunk in sorted(ended, key=lambda chunk: chunk.ticket):
            self._leave(chunk)
            chunk.produced = chunk.tokens
            chunk.finished_s = self._at_s
            if not chunk.done:
                self._prefixes.release(chunk.request, int(chunk.own_tokens))
        self._prefixes.shrink(self.limits.kv_capacity_tokens - self.held_tokens)
        return ended

    def _run(self, segment: _Segment, steps: int) -> None:
        if not steps:
            return
        last = steps == segment.steps
        span_s = segment.lines.span_s(steps, self._read_tokens, segment.growth)
        self._at_s = segment.ends_s if last else self._at_s + span_s
        for number, count in enumerate(self._counts):
            if count:
                self._got[number] += steps * self._drafting.rates[number][segment.length]
        self._steps += steps
        self._drafts += steps * self._drafting.lengths[segment.length]
        grown = steps * segment.growth
        self.held_tokens += grown
        self._read_tokens += grown
        self.peak_tokens = max(self.peak_tokens, self.held_tokens)
        self._prefixes.shrink(self.limits.kv_capacity_tokens - self.held_tokens)

    def _plan(self) -> _Segment | None:
        """Find the next event: a chunk ends, or room does; makes room for one step at least."""
        while self._running:
            batch = len(self._running)
            length = self._drafting.choose(self._cost, batch, self._read_tokens, self._counts)
            rates = [of_class[length] for of_class in self._drafting.rates]
            growth = sum(count * rate for count, rate in zip(self._counts, rates, strict=True))
            room = self.limits.kv_capacity_tokens - self.held_tokens
            if growth <= room:
                steps = min(int(room // growth), *self._steps_to_ends(rates))
                lines = self._cost.lines(batch, self._drafting.lengths[length])
                ends_s = self._at_s + lines.span_s(steps, self._read_tokens, growth)
                return _Segment(lines, length, growth, steps, ends_s)
            self._preempt()
        if self._waiting:
            chunk = self._waiting[0]
            raise RunError(
                f"instance {self.id} has room for {self.limits.kv_capacity_tokens} tokens, too few for {chunk.request} "
                f"of {chunk.context_tokens}"
            )
        return None

    def _steps_to_ends(self, rates: Iterable[float]) -> Iterable[int]:
        for heap, got, rate in zip(self._ends, self._got, rates, strict=True):
            while heap and heap[0][2].ticket != heap[0][1]:
                heappop(heap)
            if heap:
                yield max(1, -int(-(heap[0][0] - got - _LEAST) // rate))

    def _fits(self, chunk: Chunk) -> bool:
        if len(self._running) >= self.limits.max_running:
            return False
        wanted = chunk.own_tokens + (0 if chunk.request.group in self._members else chunk.prompt_tokens)
        room = self.limits.kv_capacity_tokens - self.held_tokens
        return wanted + (self._watermark if self._running else 0) <= room

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0]):
            self._enter(self._waiting.popleft())

    def _enter(self, chunk: Chunk) -> None:
        group, own = chunk.request.group, chunk.own_tokens
        members = self._members.get(group, 0)
        self._members[group] = members + 1
        prompt = chunk.prompt_tokens if members else self._prefixes.take(group)
        cached = self._prefixes.take(chunk.request)
        self.held_tokens += own + (0 if members else chunk.prompt_tokens)
        self._prefixes.shrink(self.limits.kv_capacity_tokens - self.held_tokens)
        chunk.started_s = self._at_s if chunk.started_s is None else chunk.started_s
        self._at_s += self._resume.resume(chunk, self.id, prompt=prompt, own=cached, cost=self._cost)
        self._read_tokens += chunk.context_tokens
        self._num_tickets += 1
        chunk.ticket = self._num_tickets
        self._running[chunk.request] = chunk
        self._join(chunk)

    def _join(self, chunk: Chunk) -> None:
        chunk.running_class = chunk.class_number
        chunk.joined_at = self._got[chunk.running_class]
        chunk.joined_steps, chunk.joined_drafts = self._steps, self._drafts
        self._counts[chunk.running_class] += 1
        heappush(
            self._ends[chunk.running_class],
            (chunk.joined_at + chunk.tokens - chunk.produced, chunk.ticket, chunk),
        )

    def _change_class(self, chunk: Chunk, number: int) -> None:
        chunk.class_number = number
        if not chunk.ticket or chunk.running_class == number:
            return
        self._count_off(chunk)
        self._num_tickets += 1
        # Its place in the order of admission stays; only the entry of the heap that it leaves is void.
        chunk.ticket = self._num_tickets
        self._join(chunk)

    def _count_off(self, chunk: Chunk) -> None:
        chunk.produced += self._got[chunk.running_class] - chunk.joined_at
        chunk.steps += self._steps - chunk.joined_steps
        chunk.drafted_tokens += self._drafts - chunk.joined_drafts
        self._counts[chunk.running_class] -= 1

    def _leave(self, chunk: Chunk) -> None:
        """Take a running request out; its tokens so far are `own_tokens`."""
        self._count_off(chunk)
        chunk.ticket = 0
        del self._running[chunk.request]
        group = chunk.request.group
        self._members[group] -= 1
        self._read_tokens -= chunk.context_tokens
        self.held_tokens -= chunk.own_tokens
        if not self._members[group]:
            del self._members[group]
            self.held_tokens -= chunk.prompt_tokens
            self._prefixes.release(group, chunk.prompt_tokens)
        if not self._running:
            self.held_tokens = self._read_tokens = 0.0  # what rounding has left

    def _preempt(self) -> None:
        chunk = self._running[next(reversed(self._running))]
        self._leave(chunk)
        chunk.produced = int(chunk.produced)
        chunk.preemptions += 1
        self._prefixes.release(chunk.request, int(chunk.own_tokens))
        self._prefixes.shrink(self.limits.kv_capacity_tokens - self.held_tokens)
        self._waiting.appendleft(chunk)
