"""Two ways to do the same, timed in turns, so that what else the machine does falls on both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from sestina.core.units import Seconds

Work = Callable[[int], object]
"""Does the work of one turn, given its number."""

Say = Callable[[str], object]
"""Takes a line about progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one turn of one side took."""

    wall_s: Seconds
    cpu_s: Seconds
    """Of this process, all its threads; well under `wall_s` when others kept the core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The turns of both; entry i of one was taken right before entry i of the other."""

    ours: tuple[Span, ...]
    theirs: tuple[Span, ...]

    @property
    def speedups(self) -> list[float]:
        """Their wall time over ours, turn by turn."""
        return [theirs.wall_s / ours.wall_s for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def speedup(self) -> float:
        """The median over turns."""
        return statistics.median(self.speedups)

    @property
    def cpu_speedup(self) -> float:
        """Their CPU time over ours, the median over turns."""
        return statistics.median(t.cpu_s / o.cpu_s for o, t in zip(self.ours, self.theirs, strict=True))


def take_turns(ours: Work, theirs: Work, *, turns: int, name: str, say: Say) -> Turns:
    """Time both in `turns` turns, numbered from 1, after a turn 0 that does not count."""
    for work in (ours, theirs):
        work(0)
    taken: list[tuple[Span, Span]] = []
    for turn in range(1, turns + 1):
        taken.append((_timed(ours, turn), _timed(theirs, turn)))
        mine, other = taken[-1]
        spans = f"{mine.wall_s:.3f} s against {other.wall_s:.3f} s (CPU {mine.cpu_s:.3f}, {other.cpu_s:.3f})"
        say(f"{name}: turn {turn}/{turns}: {spans}, {other.wall_s / mine.wall_s:.2f} x")
    return Turns(ours=tuple(mine for mine, _ in taken), theirs=tuple(other for _, other in taken))


def _timed(work: Work, turn: int) -> Span:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work(turn)
    return Span(wall_s=time.perf_counter() - wall_s, cpu_s=time.process_time() - cpu_s)
