"""How many bytes each tier holds, counted once for all processes of a node, under one lock."""

from collections.abc import Callable
from pathlib import Path

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.kvpool import _native
from sestina.policies.kv_pool.room import Tier

LOCK_S: Seconds = 30.0
"""For others to give the lock back; they hold it for some system calls at a time."""
_ORDER: tuple[Tier, ...] = ("dram", "ssd")
_GENERATION, _TORN = len(_ORDER), len(_ORDER) + 1
"""The words behind them; native/tally.h has the same order."""


class Tally:
    """Bytes by tier, in a file that all processes map; read and changed while it is entered, which locks it.

    Entering raises DeadlineError when others do not give the lock back. A process that ended with the lock may have
    left memory in disorder: whoever comes next begins with none of it, a new `generation`, or raises OSError when the
    SSD cannot be counted, and leaves it to the next.
    """

    def __init__(self, path: Path, *, count_ssd: Callable[[], int]) -> None:
        self._path = path
        self._count_ssd = count_ssd
        self.native = _native.Tally(str(path))

    def __getitem__(self, tier: Tier) -> int:
        return self.native.get(_ORDER.index(tier))

    @property
    def generation(self) -> int:
        """Of what lies in memory."""
        return self.native.get(_GENERATION)

    def add(self, tier: Tier, num_bytes: int) -> None:
        """Count more bytes, or fewer."""
        self.native.set(_ORDER.index(tier), self[tier] + num_bytes)

    def __enter__(self) -> "Tally":
        if not self.native.enter(LOCK_S):
            raise DeadlineError(f"the lock of {self._path}", LOCK_S)
        if self.native.get(_TORN):
            try:
                self._begin_anew()
            except OSError:
                self.native.leave()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.native.leave()

    def _begin_anew(self) -> None:
        ssd_bytes = self._count_ssd()
        self.native.set(_GENERATION, self.generation + 1)
        for word, num_bytes in enumerate((0, ssd_bytes)):
            self.native.set(word, num_bytes)
        self.native.set(_TORN, 0)
