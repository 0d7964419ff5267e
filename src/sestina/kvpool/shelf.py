"""The files on the SSD: `NAME.kv`, `NAME.kv.moving` while on its way to memory, and what is being written.

Files are written aside and renamed. Nothing is flushed to the disk: what a crash tears the checksums find, and nobody
reads what another start has left.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sestina.core.units import Seconds
from sestina.kvpool.entry import SUFFIX, ByteArray
from sestina.kvpool.folder import Folder
from sestina.policies.kv_pool.room import Held, Tier

_log = logging.getLogger(__name__)
_MOVING = ".moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry that was taken out; its room is the machine's again when it is read or closed."""

    num_bytes: int
    moving: bool
    """Taken while on its way to memory."""
    file: int
    """A descriptor, which `read` or `close` gives back."""
    tier: Tier = field(default="ssd", init=False)

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
    """One process's hold on the folder of a disk."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._at, self._pid = f"{folder.path}/", os.getpid()

    def held(self) -> Iterator[Held]:
        """Yield what is complete and stays where it is."""
        for file in os.scandir(self.folder.path):
            if file.name.endswith(SUFFIX) and not file.name.startswith("."):
                found = file.stat()
                yield Held(name=file.name, tier="ssd", num_bytes=found.st_size, used_s=found.st_mtime)

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
            os.unlink(path)
            return Found(num_bytes=os.fstat(file).st_size, moving=moving, file=file)
        return None

    def total_bytes(self) -> int:
        """Return what all files have that are entries, or become some; raises OSError."""
        return sum(_size_of(file) for file in os.scandir(self.folder.path) if SUFFIX in file.name)

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
        try:
            self.write_aside(name, *parts)
            self.place(name)
        except OSError:
            self.discard(name)
            raise

    def write_aside(self, name: str, *parts: bytes | memoryview) -> None:
        """Write an entry that nobody finds; `place` or `discard` follows. Raises OSError."""
        file = os.open(self._aside(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(file, parts)
        finally:
            os.close(file)

    def date(self, name: str, used_s: Seconds) -> None:
        """Say when what lies aside was used last; raises OSError."""
        os.utime(self._aside(name), (used_s, used_s))

    def place(self, name: str) -> None:
        """Make what was written aside an entry; raises OSError."""
        os.rename(self._aside(name), self._at + name)

    def discard(self, name: str) -> None:
        """Remove what was written aside."""
        try:
            Path(self._aside(name)).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("KV pool: %s stays: %s", self._aside(name), error.strerror)

    def _aside(self, name: str) -> str:
        return f"{self._at}.{name}.{self._pid}"


def _size_of(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # who discards what lies aside needs no lock
        return 0


def _write_all(file: int, parts: Sequence[bytes | memoryview]) -> None:
    """Write these; raises OSError."""
    num_bytes = sum(memoryview(part).nbytes for part in parts)
    written = os.writev(file, parts)
    if written < num_bytes:  # as at the end of a disk, whose next write says so
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.write(file, rest) :]
