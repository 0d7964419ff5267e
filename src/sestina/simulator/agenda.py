"""What is to happen, in order of virtual time; at one instant, in the order in which it was put down."""

import heapq
import itertools
from collections.abc import Callable
from typing import TypeAlias

from sestina.core.units import Seconds

Happening: TypeAlias = Callable[[Seconds], object]
"""Takes place at the instant that it is given."""


class Agenda:
    """A queue of happenings."""

    def __init__(self) -> None:
        self._queue: list[tuple[Seconds, int, Happening]] = []
        self._tickets = itertools.count()

    def put(self, at: Seconds, happening: Happening) -> None:
        """Put down what happens at an instant."""
        heapq.heappush(self._queue, (at, next(self._tickets), happening))

    def run_next(self) -> bool:
        """Let the next thing happen; returns False when there was none."""
        if not self._queue:
            return False
        at, _, happening = heapq.heappop(self._queue)
        happening(at)
        return True
