"""Move or compute again: whichever is predicted to take less time, from measured times of both.

    move(n bytes from a tier) = a + b n    fitted to the moves of late, one line per tier
    recompute(m tokens)       = c m        c: what one row more adds to a forward pass, measured when weights are loaded

Attention over long contexts is not in c: for those, computing again takes longer than predicted. A tier of which too
few moves have been seen is moved from.
"""

from sestina.core.units import Seconds
from sestina.policies.kv_pool.room import Tier

SEEN = 4
"""Moves that a prediction rests on at least."""

FORGET = 0.98
"""Weight of a move relative to the one after it."""

TRY_AGAIN = 32
"""Of so many moves that look dear one is made, so that times that have changed are seen."""


class MoveCost:
    """Learns what moves take; asked once per chunk that is resumed."""

    def __init__(self, row_s: Seconds) -> None:
        """`row_s`: see c above."""
        self._row_s = row_s
        self._lines: dict[Tier, _Line] = {"dram": _Line(), "ssd": _Line()}
        self._num_dear = 0

    def learn(self, tier: Tier, num_bytes: int, seconds: Seconds) -> None:
        """A move took `seconds`."""
        self._lines[tier].learn(float(num_bytes), seconds)

    def move_s(self, tier: Tier, num_bytes: int) -> Seconds | None:
        """Return what a move is predicted to take; None while too few have been seen."""
        return self._lines[tier].at(float(num_bytes))

    def moves(self, tier: Tier, num_bytes: int, num_tokens: int) -> bool:
        """Whether to move an entry of `num_bytes` rather than compute the `num_tokens` that it would spare."""
        move_s = self.move_s(tier, num_bytes)
        if move_s is None or move_s <= num_tokens * self._row_s:
            return True
        self._num_dear += 1
        return self._num_dear % TRY_AGAIN == 0

    def promotes(self, num_bytes: int) -> bool:
        """Whether an entry that is soon wanted had better lie in DRAM than on the SSD."""
        dram_s, ssd_s = self.move_s("dram", num_bytes), self.move_s("ssd", num_bytes)
        return dram_s is None or ssd_s is None or ssd_s > dram_s


class _Line:
    """Least squares of y over x, older points counting less; neither slope nor constant below 0."""

    def __init__(self) -> None:
        self._num = 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def learn(self, x: float, y: float) -> None:
        self._num += 1
        self._n = FORGET * self._n + 1
        self._x = FORGET * self._x + x
        self._y = FORGET * self._y + y
        self._xx = FORGET * self._xx + x * x
        self._xy = FORGET * self._xy + x * y

    def at(self, x: float) -> float | None:
        if self._num < SEEN:
            return None
        spread = self._n * self._xx - self._x * self._x
        alike = spread <= 1e-9 * self._n * self._xx
        slope = 0.0 if alike else max(0.0, (self._n * self._xy - self._x * self._y) / spread)
        constant = (self._y - slope * self._x) / self._n
        return constant + slope * x if constant >= 0 else self._y / self._x * x
