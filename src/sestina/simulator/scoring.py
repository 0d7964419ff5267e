"""Rewards in an emulated world: each takes as long as it took, on the first worker that is free."""

import heapq
from collections.abc import Callable
from typing import TypeAlias

from sestina.core.units import Seconds
from sestina.rewards import messages as rewards
from sestina.rewards.outcome import Outcome

Score: TypeAlias = Callable[[rewards.Sample], Outcome]
"""Scores one response, whose `elapsed_s` is then what it took."""


class Workers:
    """Reward workers as times at which they are free."""

    def __init__(self, num_workers: int) -> None:
        self._free_s = [0.0] * num_workers

    def take(self, at: Seconds, takes_s: Seconds) -> Seconds:
        """Give the next worker something that comes at an instant; returns when it is done."""
        done = max(at, self._free_s[0]) + takes_s
        heapq.heapreplace(self._free_s, done)
        return done
