"""How many bytes each tier holds, counted once for all processes of a node, under one lock."""

import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.policies.kv_pool.room import Tier

LOCK_S: Seconds = 30.0
"""For others to give the lock back; they hold it for some system calls at a time."""
_LOOK_S: Seconds = 0.0001
_ORDER: tuple[Tier, ...] = ("dram", "ssd")


class Tally:
    """Bytes by tier, in a file that all processes map; read and changed while `locked` only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.truncate(self._file, 8 * len(_ORDER))
        self._bytes = np.frombuffer(mmap.mmap(self._file, 8 * len(_ORDER)), np.int64)

    def __getitem__(self, tier: Tier) -> int:
        return int(self._bytes[_ORDER.index(tier)])

    def add(self, tier: Tier, num_bytes: int) -> None:
        """Count more bytes, or fewer."""
        self._bytes[_ORDER.index(tier)] += num_bytes

    @contextmanager
    def locked(self) -> Iterator["Tally"]:
        """Keep the other processes out; raises DeadlineError when one does not give the lock back."""
        deadline = time.monotonic() + LOCK_S
        while not self._lock():
            if time.monotonic() > deadline:
                raise DeadlineError(f"the lock of {self._path}", LOCK_S)
            time.sleep(_LOOK_S)
        try:
            yield self
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
