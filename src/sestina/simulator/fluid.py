"""A rollout instance as a fluid: between two events all that it runs advances together, in closed form.

A step is never taken, whatever the number of requests (progress.py). What an engine does at its boundaries is that of
`rollout/batcher.py`: requests are admitted in order of arrival while slots and room last, a share of it left free; when
the next step has no room, the request admitted last gives its room up, waits in front and computes its tokens again.
Prefill stops the others, or is in their steps, as the cost says.

New weights are those of `Batcher.change_weights`: what runs goes back to the front of the queue with its tokens, in its
order, and computes them again, or goes on over what it has; nothing that was kept for later is of use. An instance that
drains ends what it has begun before it takes them, and begins nothing meanwhile.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from sestina.core.errors import RunError
from sestina.core.ids import RequestId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.policies.events import KvReport
from sestina.rollout.batcher import WATERMARK
from sestina.simulator.acceptance import Drafting
from sestina.simulator.chunk import Chunk
from sestina.simulator.cost.span import StepLines
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.progress import Progress
from sestina.simulator.residents import FluidLimits, Residents
from sestina.simulator.resume import Resume


@dataclass(frozen=True, slots=True, kw_only=True)
class OnUpdate:
    """What new weights do to what an instance runs."""

    drains: bool = False
    """It ends first; it is interrupted otherwise."""
    keep_kv: bool = False
    """Interrupted, it goes on over the keys and values it has."""


class _Weights(NamedTuple):
    """At the door."""

    version: Version
    takes_s: Seconds
    """To be received and loaded."""


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
        self,
        instance: InstanceId,
        limits: FluidLimits,
        cost: EngineCost,
        drafting: Drafting,
        resume: Resume,
        on_update: OnUpdate = OnUpdate(),
    ) -> None:
        self.id = instance
        self.limits = limits
        self.peak_tokens = 0.0
        """The most that it has held."""
        self.version: Version = 0
        """Of its weights."""
        self._cost, self._drafting, self._resume, self._on_update = cost, drafting, resume, on_update
        self._watermark = int(limits.kv_capacity_tokens * WATERMARK)
        self._at_s: Seconds = 0.0
        """The boundary that the state is of; it may lie ahead of the world's time."""
        self._waiting: deque[Chunk] = deque()
        self._running: dict[RequestId, Chunk] = {}
        """In order of admission."""
        self._bound_tokens = 0
        """What all chunks that are here can come to hold, each by itself."""
        self._read_tokens = 0.0
        """Contexts of all that run, prompts counted for each."""
        self._progress = Progress(drafting)
        self._residents = Residents(limits, self._progress.own_tokens)
        self._segment: _Segment | None = None
        self._gave_way = False
        """Whether the step that begins at the boundary has cost a request its room: it does not come back before it."""
        self._joined = False
        """Whether chunks join the step that begins at the boundary, and take rows that drafts would have."""
        self._moves: list[tuple[Chunk, int]] = []
        self._cuts: list[Chunk] = []
        self._weights: _Weights | None = None
        self.loaded_s: Seconds = 0.0
        """When it had its weights."""
        self._idle_s: Seconds = 0.0

    def idle_s(self, now: Seconds) -> Seconds:
        """Return how long it has had nothing to do."""
        return self._idle_s + (0.0 if self._running else max(0.0, now - self._at_s))

    @property
    def held_tokens(self) -> float:
        """Keys and values of those that run; what several have in common counts once."""
        return self._residents.held_tokens

    def kv(self) -> KvReport:
        """Return what the planner is told with chunks that have ended, as the embedded engine counts it."""
        return KvReport(
            peak_tokens=self._bound_tokens - self._residents.shared_tokens,
            capacity_tokens=self.limits.kv_capacity_tokens,
        )

    def _bound(self, chunk: Chunk) -> int:
        page, most = self.limits.page_tokens, chunk.prompt_tokens + chunk.generated_tokens + chunk.budget_tokens
        return -(-most // page) * page

    @property
    def num_running(self) -> int:
        """Requests that decode."""
        return len(self._running)

    def submit(self, chunk: Chunk) -> None:
        """A chunk lies at the door; `settle` lets it in."""
        self._waiting.append(chunk)
        self._bound_tokens += self._bound(chunk)

    def reclass(self, chunk: Chunk, number: int) -> None:
        """A chunk that runs here is of another class from the next boundary on; `settle` does it."""
        self._moves.append((chunk, number))

    def abort(self, chunk: Chunk) -> bool:
        """Have a chunk end with its next token; returns False when it waits here, and is let go at once."""
        if chunk.ticket:
            self._cuts.append(chunk)
            return True
        self._waiting.remove(chunk)
        self._bound_tokens -= self._bound(chunk)
        return False

    def update(self, version: Version, takes_s: Seconds) -> None:
        """Weights lie at the door; `settle` takes them."""
        self._weights = _Weights(version, takes_s)

    def ask(self, version: Version, takes_s: Seconds) -> None:
        """A chunk comes that is of weights of a version, or newer ones; `settle` loads them if it has older ones."""
        newest = self.version if self._weights is None else self._weights.version
        if version > newest:
            self.update(version, takes_s)

    def settle(self, now: Seconds) -> Seconds | None:
        """Take in what has come by `now`, at the first boundary from then on.

        Returns when the next event is due; None when there is none.
        """
        segment = self._segment
        if segment is not None and now < segment.ends_s:
            if not self._at_the_door:
                return segment.ends_s
            steps = segment.lines.steps_for(now - self._at_s, self._read_tokens, segment.growth)
            if steps >= segment.steps or (not steps and self._gave_way and not self._takes_weights):
                return segment.ends_s
            self._run(segment, steps)
        elif segment is not None and segment.steps:
            return segment.ends_s  # due at this instant, and `finish` will be asked
        elif not self._running:
            self._idle_s = self.idle_s(now)
            self._at_s = max(self._at_s, now)
        self._take_in()
        self._segment = self._plan()
        return self._segment and self._segment.ends_s

    def finish(self) -> list[Chunk]:
        """Go to the event that is due; returns the chunks that end there, in the order of their admission."""
        assert self._segment is not None, f"instance {self.id} has no event"
        self._run(self._segment, self._segment.steps)
        self._segment = None
        ended = self._progress.ended()
        for chunk in ended:
            self._leave(chunk)
            self._bound_tokens -= self._bound(chunk)
            chunk.produced = chunk.tokens
            chunk.turn(chunk.version, kept_kv=chunk.kept_kv)
            chunk.finished_s = self._at_s
            self._residents.release(chunk, complete=chunk.done)
        self._residents.shrink()
        return ended

    @property
    def _at_the_door(self) -> bool:
        """Whether anything waits for a boundary that would be let in."""
        fits = bool(self._waiting) and self._fits(self._waiting[0])
        return bool(self._moves or self._cuts) or self._takes_weights or fits

    @property
    def _takes_weights(self) -> bool:
        begun = bool(self._running) or self._begun_waits
        return self._weights is not None and not (self._on_update.drains and begun)

    @property
    def _begun_waits(self) -> bool:
        """Whether what waits first has run before; those in front of the queue have."""
        return bool(self._waiting) and self._waiting[0].started_s is not None

    def _take_in(self) -> None:
        """Do at a boundary what has been asked for, and let in what waits."""
        for chunk, number in self._moves:
            self._progress.reclass(chunk, number)
        self._moves.clear()
        for chunk in self._cuts:
            self._cut(chunk)
        self._cuts.clear()
        if self._weights is not None and self._takes_weights:
            self._load(self._weights)
            self._weights = None
        self._admit()

    def _cut(self, chunk: Chunk) -> None:
        if chunk.ticket:
            self._progress.leave(chunk)
            chunk.tokens, chunk.done = min(chunk.tokens, int(chunk.produced) + 1), True
            self._progress.join(chunk)

    def _load(self, weights: _Weights) -> None:
        """Have every request go on under other weights; drafts are forgotten with the rest."""
        self._at_s = self.loaded_s = self._at_s + weights.takes_s
        self.version = weights.version
        kept = self._on_update.keep_kv
        for chunk in self._waiting:
            chunk.classes = []
            chunk.turn(weights.version, kept_kv=False)
        for chunk in reversed(list(self._running.values())):
            if kept:
                self._progress.leave(chunk)
            else:
                self._send_back(chunk)
            chunk.classes = []
            chunk.turn(weights.version, kept_kv=kept)
        if kept:
            for chunk in self._running.values():
                self._progress.join(chunk)
        self._residents.forget()

    def _run(self, segment: _Segment, steps: int) -> None:
        if not steps:
            return
        self._gave_way = self._joined = False
        last = steps == segment.steps
        span_s = segment.lines.span_s(steps, self._read_tokens, segment.growth)
        self._at_s = segment.ends_s if last else self._at_s + span_s
        self._progress.advance(steps, segment.length)
        grown = steps * segment.growth
        self._read_tokens += grown
        self._residents.grow(grown)
        self.peak_tokens = max(self.peak_tokens, self.held_tokens)

    def _plan(self) -> _Segment | None:
        """Find the next event: a chunk ends, or room does; makes room for one step at least."""
        while self._running:
            batch = len(self._running)
            counts, joined = self._progress.counts, self._joined
            length = self._drafting.choose(self._cost, batch, self._read_tokens, counts, joined=joined)
            growth = self._progress.growth(length)
            room = self._residents.room_tokens
            if growth <= room:
                steps = 1 if joined else min(int(room // growth), self._progress.steps_to_end(length))
                lines = self._cost.lines(batch, self._drafting.drafts(length, counts))
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

    def _fits(self, chunk: Chunk) -> bool:
        drains = self._weights is not None and self._on_update.drains
        if len(self._running) >= self.limits.max_running or (drains and chunk.started_s is None):
            return False
        kept_free = self._watermark if self._running else 0
        return self._residents.wanted(chunk) + kept_free <= self._residents.room_tokens

    def _admit(self) -> None:
        if not (self._waiting and self._fits(self._waiting[0])):
            return
        rows = 0
        while self._waiting and self._fits(self._waiting[0]):
            rows += self._enter(self._waiting.popleft())
        self._at_s += self._cost.joining_s(rows)
        self._joined = self._drafting.limited

    def _enter(self, chunk: Chunk) -> int:
        """Take a waiting request in; returns the tokens that it computes."""
        before = chunk.prefilled_tokens
        prompt, own = self._residents.enter(chunk)
        chunk.started_s = self._at_s if chunk.started_s is None else chunk.started_s
        if chunk.version != self.version or chunk.kept_kv:
            chunk.turn(self.version, kept_kv=False)
        self._at_s += self._resume.resume(chunk, self.id, prompt=prompt, own=own, cost=self._cost)
        self._read_tokens += chunk.context_tokens
        self._running[chunk.request] = chunk
        self._progress.join(chunk)
        return chunk.prefilled_tokens - before

    def _leave(self, chunk: Chunk) -> None:
        """Take a running request out; its tokens so far are `own_tokens`."""
        self._progress.leave(chunk)
        del self._running[chunk.request]
        self._residents.leave(chunk)
        self._read_tokens -= chunk.context_tokens
        if not self._running:
            self._read_tokens = 0.0  # what rounding has left

    def _preempt(self) -> None:
        self._gave_way = True
        chunk = self._running[next(reversed(self._running))]
        self._send_back(chunk)
        chunk.preemptions += 1
        self._residents.release(chunk)
        self._residents.shrink()

    def _send_back(self, chunk: Chunk) -> None:
        """A running chunk waits in front, with its whole tokens."""
        self._leave(chunk)
        chunk.produced = int(chunk.produced)
        self._waiting.appendleft(chunk)
