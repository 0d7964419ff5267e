"""The files of one tier: `NAME.kv`, `NAME.kv.moving` while on its way to the other tier, and what is being written.

Files are written aside and renamed. Nothing is flushed to the disk: what a crash tears the checksums find, and nobody
reads what another start has left.

A file of shared memory that was taken stays, as a blank that this process writes its next entry into: most of what an
entry costs there is memory that the kernel has to find, clear and take back. Any process removes blanks for room.
"""

import contextlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sestina.kvpool.entry import SUFFIX, ByteArray
from sestina.kvpool.folder import Folder
from sestina.policies.kv_pool.room import Held, Tier

_log = logging.getLogger(__name__)
_MOVING = ".moving"
_BLANK = ".blank"
_NUMBERS = itertools.count()
"""Of blanks: a process may have several holds on a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry that was taken out; its room is the machine's again when nobody holds its bytes."""

    tier: Tier
    num_bytes: int
    moving: bool
    """Taken while on its way to the other tier."""
    file: int
    """A descriptor, which `read` or `close` gives back."""

    def read(self) -> ByteArray:
        """Return its bytes; raises OSError."""
        raw, num_bytes = np.empty(self.num_bytes, np.uint8), 0
        try:
            while num_bytes < self.num_bytes and (more := os.readv(self.file, [raw[num_bytes:].data])):
                num_bytes += more
        finally:
            self.close()
        return raw[:num_bytes]

    def close(self) -> None:
        """Leave it unread."""
        os.close(self.file)


class Shelf:
    """One process's hold on the folder of a tier."""

    def __init__(self, tier: Tier, folder: Folder) -> None:
        self.tier: Tier = tier
        self.folder = folder
        self._at, self._pid = f"{folder.path}/", os.getpid()
        self._blanks: list[tuple[str, int]] = []

    def held(self) -> Iterator[Held]:
        """Yield what is complete and stays where it is."""
        for file in os.scandir(self.folder.path):
            if file.name.endswith(SUFFIX) and not file.name.startswith("."):
                found = file.stat()
                yield Held(name=file.name, tier=self.tier, num_bytes=found.st_size, used_s=found.st_mtime)

    def num_bytes(self, name: str) -> int:
        """Return the size of an entry; 0 when it is not there."""
        if not os.access(self._at + name, os.F_OK):  # as nearly always, at a fourth of what an exception takes
            return 0
        try:
            return os.stat(self._at + name).st_size
        except OSError:
            return 0

    def take(self, name: str) -> Found | None:
        """Take an entry out; None when it is not there. Raises OSError when it is and cannot be opened."""
        for path, moving in ((self._at + name, False), (f"{self._at}{name}{_MOVING}", True)):
            try:
                file = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            num_bytes = os.fstat(file).st_size
            if self.tier == "ssd" or moving:
                os.unlink(path)
            else:
                blank = f"{self._at}.{self._pid}-{next(_NUMBERS)}{_BLANK}"
                os.rename(path, blank)
                self._blanks.append((blank, num_bytes))
            return Found(tier=self.tier, num_bytes=num_bytes, moving=moving, file=file)
        return None

    def reuse(self, name: str) -> int:
        """Have the next `write` of this entry go to a blank; returns the blank's bytes, 0 when there is none."""
        while self._blanks:
            blank, num_bytes = self._blanks.pop()
            with contextlib.suppress(FileNotFoundError):  # somebody else had to have the room
                os.rename(blank, self._aside(name))
                return num_bytes
        return 0

    def clear_blanks(self) -> int:
        """Remove all processes' blanks; returns their bytes."""
        blanks = [file for file in os.scandir(self.folder.path) if file.name.endswith(_BLANK)]
        num_bytes = sum(file.stat().st_size for file in blanks)
        for file in blanks:
            os.unlink(file.path)
        return num_bytes

    def drop(self, name: str) -> None:
        """Remove an entry."""
        (self.folder.path / name).unlink()

    def lift(self, name: str) -> None:
        """Mark an entry as moving: from then on it can be taken, and nothing else."""
        (self.folder.path / name).rename(self.moving(name))

    def lower(self, name: str) -> None:
        """An entry that was moving stays."""
        self.moving(name).rename(self.folder.path / name)

    def moving(self, name: str) -> Path:
        """Return the path of an entry on its way."""
        return self.folder.path / f"{name}{_MOVING}"

    def write(self, name: str, *parts: bytes | memoryview) -> None:
        """Write an entry; raises OSError, and then leaves nothing."""
        aside = self._aside(name)
        try:
            file = os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                _write_all(file, parts)
            finally:
                os.close(file)
            os.rename(aside, self._at + name)
        except OSError:
            self.discard(name)
            raise

    def copy(self, source: Path, name: str) -> None:
        """Write an entry aside from a file; `place` or `discard` follows. Raises OSError."""
        shutil.copyfile(source, self._aside(name))
        shutil.copystat(source, self._aside(name))

    def place(self, name: str) -> None:
        """Make what was copied an entry."""
        os.rename(self._aside(name), self._at + name)

    def discard(self, name: str) -> None:
        """Remove what was written aside."""
        try:
            Path(self._aside(name)).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("KV pool: %s stays: %s", self._aside(name), error.strerror)

    def _aside(self, name: str) -> str:
        return f"{self._at}.{name}.{self._pid}"


def _write_all(file: int, parts: Sequence[bytes | memoryview]) -> None:
    """Write these and nothing behind them; raises OSError."""
    num_bytes = sum(memoryview(part).nbytes for part in parts)
    written = os.writev(file, parts)
    if written < num_bytes:  # as at the end of a disk, whose next write says so
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.write(file, rest) :]
    if os.fstat(file).st_size > num_bytes:
        os.truncate(file, num_bytes)
