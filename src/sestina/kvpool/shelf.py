"""The files of one tier: `NAME.kv`, `NAME.kv.moving` while on its way to the other tier, and what is being written.

Files are written aside and renamed. Nothing is flushed to the disk: what a crash tears the checksums find, and nobody
reads what another start has left.
"""

import logging
import mmap
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sestina.kvpool.entry import SUFFIX, ByteArray
from sestina.kvpool.folder import Folder
from sestina.policies.kv_pool.room import Held, Tier

_log = logging.getLogger(__name__)
_MOVING = ".moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry that was taken out; its room is the machine's again when nobody holds its bytes."""

    tier: Tier
    num_bytes: int
    moving: bool
    """Taken while on its way to the other tier."""
    file: BinaryIO

    def read(self) -> ByteArray:
        """Return its bytes, of shared memory without a copy; raises OSError."""
        with self.file:
            if self.tier == "ssd" or not self.num_bytes:
                return np.fromfile(self.file, np.uint8)
            return np.frombuffer(mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)

    def close(self) -> None:
        """Leave it unread."""
        self.file.close()


class Shelf:
    """One process's hold on the folder of a tier."""

    def __init__(self, tier: Tier, folder: Folder) -> None:
        self.tier: Tier = tier
        self.folder = folder

    def held(self) -> Iterator[Held]:
        """Yield what is complete and stays where it is."""
        for file in os.scandir(self.folder.path):
            if file.name.endswith(SUFFIX) and not file.name.startswith("."):
                found = file.stat()
                yield Held(name=file.name, tier=self.tier, num_bytes=found.st_size, used_s=found.st_mtime)

    def num_bytes(self, name: str) -> int:
        """Return the size of an entry; 0 when it is not there."""
        try:
            return (self.folder.path / name).stat().st_size
        except OSError:
            return 0

    def take(self, name: str) -> Found | None:
        """Take an entry out; None when it is not there. Raises OSError when it is and cannot be opened."""
        for path in (self.folder.path / name, self.moving(name)):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            path.unlink()
            num_bytes = os.fstat(file.fileno()).st_size
            return Found(tier=self.tier, num_bytes=num_bytes, moving=path.suffix == _MOVING, file=file)
        return None

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
            with aside.open("wb") as file:
                for part in parts:
                    file.write(part)
            aside.replace(self.folder.path / name)
        except OSError:
            self.discard(name)
            raise

    def copy(self, source: Path, name: str) -> None:
        """Write an entry aside from a file; `place` or `discard` follows. Raises OSError."""
        shutil.copyfile(source, self._aside(name))
        shutil.copystat(source, self._aside(name))

    def place(self, name: str) -> None:
        """Make what was copied an entry."""
        self._aside(name).replace(self.folder.path / name)

    def discard(self, name: str) -> None:
        """Remove what was written aside."""
        try:
            self._aside(name).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("KV pool: %s stays: %s", self._aside(name), error.strerror)

    def _aside(self, name: str) -> Path:
        return self.folder.path / f".{name}.{os.getpid()}"
