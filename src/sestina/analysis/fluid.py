"""An instance without an engine: all that runs there advances together, in closed form between two events.

It admits chunks in order while it has room for their contexts, and takes the pages of the one that came last when the
others outgrow it, as an engine does; then it admits none until one of them has ended.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from sestina.analysis.pace import Pace
from sestina.core.ids import RequestId
from sestina.core.units import Seconds


@dataclass(slots=True, kw_only=True)
class Running:
    """A chunk on its way."""

    request: RequestId
    context_tokens: int
    """When it is admitted next."""
    tokens: int
    """That it has still to produce then."""
    prefill_tokens: float
    begins: float = 0.0
    """Steps of the instance when it was admitted."""
    order: int = 0


class FluidInstance:
    """Steps are real numbers; every method takes a time that is no earlier than the one before."""

    def __init__(self, pace: Pace, *, kv_capacity_tokens: int, max_running: int) -> None:
        self._pace, self._capacity, self._max_running = pace, kv_capacity_tokens, max_running
        self._waiting: deque[Running] = deque()
        self._ends: list[tuple[float, int, Running]] = []
        self._running: dict[int, Running] = {}
        self._steps = 0.0
        self._base_tokens = 0.0
        self._at: Seconds = 0.0
        self._stalled_until: Seconds = 0.0
        self._orders = 0
        self._crowded = False
        """Whether pages have run out since a chunk last ended."""
        self.version = 0
        """Counts changes, so that an end foretold before one can be told from a true one."""
        self.preemptions = 0

    def submit(self, chunk: Running, now: Seconds) -> None:
        """A chunk arrives."""
        self._advance(now)
        self._waiting.append(chunk)
        self._admit()

    def next_s(self) -> Seconds | None:
        """Return when a chunk ends or pages run out, as things stand; None while nothing runs."""
        if not self._running:
            return None
        steps = self._first()[0] - self._steps
        if len(self._running) > 1:
            steps = min(steps, max(0.0, self._room()) / self._growth())
        return max(self._at, self._stalled_until) + steps * self._pace.step_of(len(self._running))

    def take(self, now: Seconds) -> list[Running]:
        """Return the chunks that end now, or make room by preemption."""
        self._advance(now)
        ended: list[Running] = []
        while self._running and self._first()[0] - self._steps <= 1e-9:  # noqa: PLR2004 - of a step
            ended.append(self._remove(self._first()[2]))
            self._crowded = False
        if not ended and len(self._running) > 1 and self._room() <= 1e-6:  # noqa: PLR2004 - of a token
            self._preempt()
        self._admit()
        return ended

    def _advance(self, now: Seconds) -> None:
        begin = max(self._at, self._stalled_until)
        if self._running and now > begin:
            self._steps += (now - begin) / self._pace.step_of(len(self._running))
        self._at = max(self._at, now)
        self.version += 1

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._max_running and not self._crowded:
            chunk = self._waiting[0]
            if self._running and chunk.context_tokens > self._room():
                return
            self._waiting.popleft()
            self._orders += 1
            chunk.begins, chunk.order = self._steps, self._orders
            self._base_tokens += chunk.context_tokens - self._pace.tokens_per_step * self._steps
            self._running[chunk.order] = chunk
            heapq.heappush(self._ends, (self._steps + chunk.tokens / self._pace.tokens_per_step, chunk.order, chunk))
            prefill_s = chunk.prefill_tokens * self._pace.prefill_s
            self._stalled_until = max(self._at, self._stalled_until) + prefill_s

    def _remove(self, chunk: Running) -> Running:
        del self._running[chunk.order]
        self._base_tokens -= chunk.context_tokens - self._pace.tokens_per_step * chunk.begins
        return chunk

    def _preempt(self) -> None:
        chunk = self._remove(self._running[max(self._running)])
        made = min(chunk.tokens, int((self._steps - chunk.begins) * self._pace.tokens_per_step))
        context = chunk.context_tokens + made
        left = max(1, chunk.tokens - made)
        self._waiting.appendleft(
            Running(request=chunk.request, context_tokens=context, tokens=left, prefill_tokens=context)
        )
        self.preemptions += 1
        self._crowded = True

    def _first(self) -> tuple[float, int, Running]:
        while self._ends[0][1] not in self._running:
            heapq.heappop(self._ends)
        return self._ends[0]

    def _room(self) -> float:
        return self._capacity - self._base_tokens - self._growth() * self._steps

    def _growth(self) -> float:
        return self._pace.tokens_per_step * len(self._running)
