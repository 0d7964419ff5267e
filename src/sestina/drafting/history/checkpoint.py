"""A store as one file, of which every record is checked by itself.

A head, then each record behind its key, its size and a CRC-32 of both. The head: MAGIC, the number of records (8 bytes)
and the digest of the prompt set (16), and a CRC-32.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sestina.drafting.history.answers import is_whole
from sestina.drafting.history.store import HistoryStore

MAGIC = b"sestina history 1\n"
_HEAD = struct.Struct(f"<{len(MAGIC)}sQ16s")
_ENTRY = struct.Struct("<QQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of a file."""

    num_records: int
    num_dropped: int
    why: str
    """Why something was dropped; empty when nothing was."""


def write_history(path: Path, store: HistoryStore, digest: str) -> int:
    """Write all records; returns how many. Raises OSError."""
    keys = list(store.keys())
    with path.open("wb") as file:
        file.write(_checked(_HEAD.pack(MAGIC, len(keys), digest.encode())))
        written = 0
        for key in keys:
            record = store.get(key)
            if record is not None:
                file.write(_checked(_ENTRY.pack(key, len(record))) + record)
                written += 1
        file.seek(0)
        file.write(_checked(_HEAD.pack(MAGIC, written, digest.encode())))
    return written


def read_history(path: Path, store: HistoryStore, digest: str) -> Restored:
    """Put a file's records into a store. Damaged ones are dropped, and all when they are of another prompt set."""
    try:
        with path.open("rb") as file:
            return _read(file, store, digest)
    except OSError as error:
        return Restored(num_records=0, num_dropped=0, why=error.strerror or type(error).__name__)


def _read(file: BinaryIO, store: HistoryStore, digest: str) -> Restored:
    head = _unchecked(file.read(_HEAD.size + _CRC.size))
    magic, count, written_for = _HEAD.unpack(head) if head else (b"", 0, b"")
    if magic != MAGIC:
        return Restored(num_records=0, num_dropped=0, why="not a history file, or its head is damaged")
    if written_for != digest.encode():
        why = f"of another prompt set, whose digest is {written_for.decode(errors='replace')}; this one's is {digest}"
        return Restored(num_records=0, num_dropped=count, why=why)
    kept = 0
    for key, record in _records(file):
        if is_whole(record):
            store.put(key, record)
            kept += 1
    why = "damaged or cut short" if kept < count else ""
    return Restored(num_records=kept, num_dropped=count - kept, why=why)


def _records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield key and record until the end, or until it cannot be told where the next one begins."""
    while entry := _unchecked(file.read(_ENTRY.size + _CRC.size)):
        key, size = _ENTRY.unpack(entry)
        yield key, file.read(size)


def _checked(raw: bytes) -> bytes:
    return raw + _CRC.pack(zlib.crc32(raw))


def _unchecked(raw: bytes) -> bytes:
    """Return what `_checked` was given; nothing when it is damaged."""
    whole = len(raw) > _CRC.size and _CRC.unpack(raw[-_CRC.size :])[0] == zlib.crc32(raw[: -_CRC.size])
    return raw[: -_CRC.size] if whole else b""
