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
class Turns:
    """Seconds of each turn; entry i of one was taken right before entry i of the other."""

    ours_s: tuple[Seconds, ...]
    theirs_s: tuple[Seconds, ...]

    @property
    def speedups(self) -> list[float]:
        """Theirs over ours, turn by turn."""
        return [theirs / ours for ours, theirs in zip(self.ours_s, self.theirs_s, strict=True)]

    @property
    def speedup(self) -> float:
        """The median over turns."""
        return statistics.median(self.speedups)


def take_turns(ours: Work, theirs: Work, *, turns: int, name: str, say: Say) -> Turns:
    """Time both in `turns` turns, numbered from 1, after an untimed turn 0."""
    for work in (ours, theirs):
        work(0)
    taken: list[tuple[Seconds, Seconds]] = []
    for turn in range(1, turns + 1):
        taken.append((_timed(ours, turn), _timed(theirs, turn)))
        ours_s, theirs_s = taken[-1]
        say(f"{name}: turn {turn}/{turns}: {ours_s:.3f} s against {theirs_s:.3f} s, {theirs_s / ours_s:.2f} x")
    return Turns(ours_s=tuple(ours for ours, _ in taken), theirs_s=tuple(theirs for _, theirs in taken))


def _timed(work: Work, turn: int) -> Seconds:
    start = time.perf_counter()
    work(turn)
    return time.perf_counter() - start
