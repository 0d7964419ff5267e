"""The records of all prompts: in memory up to a limit, beyond it one file each.

What does not fit when it comes goes to the disk: of all prompts, the one that was just answered is needed last, as an
epoch asks each prompt once. Nothing here may end a run: a record that cannot be written or read is dropped and counted.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sestina.drafting.history.answers import is_whole

_log = logging.getLogger(__name__)


class HistoryStore:
    """Records by prompt key; the last one of a prompt replaces the one before it. One owner, one thread.

    `folder` is emptied: what a run goes on from is in its checkpoint.
    """

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._held: dict[int, bytes] = {}
        self._spilled: set[int] = set()
        self.held_bytes = 0
        """Of records in memory."""
        self.counts: Counter[str] = Counter()
        """Records dropped: `damaged`, `unwritten`, `unread`."""
        self._empty_folder()

    def __len__(self) -> int:
        return len(self._held) + len(self._spilled)

    @property
    def num_spilled(self) -> int:
        """Records on the disk."""
        return len(self._spilled)

    def keys(self) -> Iterator[int]:
        """Return the prompts that have a record, in order."""
        return iter(sorted([*self._held, *self._spilled]))

    def put(self, key: int, record: bytes) -> None:
        """Keep a record in place of the prompt's last one."""
        self._forget(key)
        if self.held_bytes + len(record) > self._limit_bytes:
            self._spill(key, record)
            return
        self._held[key] = record
        self.held_bytes += len(record)

    def get(self, key: int) -> bytes | None:
        """Return a prompt's record; None when there is none, or when it was damaged on the disk and is dropped."""
        if key not in self._spilled:
            return self._held.get(key)
        try:
            record = self._path(key).read_bytes()
        except OSError as error:
            return self._drop(key, "unread", error.strerror or type(error).__name__)
        return record if is_whole(record) else self._drop(key, "damaged", "another checksum than it was written with")

    def clear(self) -> None:
        """Forget all records, those on the disk included."""
        self._held.clear()
        self._spilled.clear()
        self.held_bytes = 0
        self._empty_folder()

    def _forget(self, key: int) -> None:
        self.held_bytes -= len(self._held.pop(key, b""))
        if key in self._spilled:
            self._spilled.discard(key)
            with suppress(OSError):  # nobody reads what is left: the next answers are written over it
                self._path(key).unlink()

    def _spill(self, key: int, record: bytes) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(key).write_bytes(record)
        except OSError as error:
            self._drop(key, "unwritten", error.strerror or type(error).__name__)
            return
        self._spilled.add(key)

    def _drop(self, key: int, what: str, why: str) -> None:
        self._spilled.discard(key)
        with suppress(OSError):  # no room, or not even a folder, is what may be the matter
            self._path(key).unlink()
        if not self.counts[what]:  # the first of its kind is said, all are counted
            _log.warning("%s: %s; its prompt is answered without history drafts", self._path(key), why)
        self.counts[what] += 1

    def _path(self, key: int) -> Path:
        return self._folder / f"{key:016x}"

    def _empty_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
