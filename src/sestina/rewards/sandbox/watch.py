"""Running programs, watched until they end or one of them meets a limit."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.core.seconds import Seconds

Met: TypeAlias = Literal["time", "output", "memory"]
"""The limit that ended a program."""

_TICK_S: Seconds = 0.05
"""How often memory is looked at."""
_PIECE_BYTES = 1 << 16
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class Watch:
    """Keeps what comes within bounds, and ends all programs at once when a limit is met."""

    def __init__(self, programs: Sequence[subprocess.Popen[bytes]], *, output_bytes: int, memory_bytes: int) -> None:
        self._programs = programs
        self._output_bytes, self._memory_bytes = output_bytes, memory_bytes
        self._selector = selectors.DefaultSelector()
        self._next_look_s: Seconds = 0.0
        self.received: dict[int, bytearray] = {}
        """By file descriptor."""

    def hear(self, descriptor: int) -> None:
        """Have what comes kept in `received`."""
        os.set_blocking(descriptor, False)
        self.received[descriptor] = bytearray()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def until_end(self, limit_s: Seconds) -> Met | None:
        """Return the limit that was met, or None when every program has ended and its pipes with it."""
        deadline = time.monotonic() + limit_s
        met = None
        while self._selector.get_map() and met is None:
            for key, _ in self._selector.select(_TICK_S):
                met = met or self._read(key.fd)
            met = met or self._limit_met(deadline)
        while met is None and any(program.poll() is None for program in self._programs):
            met = self._limit_met(deadline)
            time.sleep(_TICK_S / 10)
        for program in self._programs:
            end(program)
        self._selector.close()
        return met

    def _limit_met(self, deadline: Seconds) -> Met | None:
        now = time.monotonic()
        if now > deadline:
            return "time"
        if now < self._next_look_s:
            return None
        self._next_look_s = now + _TICK_S
        return "memory" if any(held_bytes(program.pid) > self._memory_bytes for program in self._programs) else None

    def _read(self, descriptor: int) -> Met | None:
        data = os.read(descriptor, _PIECE_BYTES)
        if not data:
            self._selector.unregister(descriptor)
            return None
        self.received[descriptor] += data
        return "output" if len(self.received[descriptor]) > self._output_bytes else None


def held_bytes(pid: int) -> int:
    """Return the resident memory of a process's descendants; those that left its group are among them."""
    total = 0
    for child in _children(pid):
        with contextlib.suppress(OSError):  # It has ended.
            total += int(Path(f"/proc/{child}/statm").read_text().split()[1]) * _PAGE_BYTES
        total += held_bytes(child)
    return total


def _children(pid: int) -> list[int]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    return [int(child) for child in found]


def end(program: subprocess.Popen[bytes]) -> None:
    """End a program; its sandbox ends with it."""
    program.send_signal(signal.SIGKILL)
    program.wait()
