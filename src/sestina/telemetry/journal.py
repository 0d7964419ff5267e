"""The planner's journal: each event it handled and what it answered, one JSON line each.

    {"now": 12.5, "event": {"type": "SampleRewarded", "request": {"group": 3, "sample": 0}}, "commands": []}
    {"resumed": true, "time": 1790000000.0, "cut_bytes": 17}

The second kind stands where a resumed run went on with a fresh planner; `cut_bytes` is what a killed process had left
of a line before it. Every segment between such lines replays by itself (replay.py).
"""

import mmap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from sestina.core.errors import DataError
from sestina.core.units import Seconds
from sestina.policies.events import Command, Event

FLUSH_S = 1.0
FLUSH_BYTES = 1 << 16

_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_COMMANDS: dict[str, type[Command]] = {kind.__name__: kind for kind in get_args(Command)}
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(dict[str, Any])
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event and the planner's answer."""

    line: int
    """In the file, from 1."""
    now: Seconds
    event: Event
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What one planner handled, from its first event on."""

    entries: tuple[Entry, ...]
    cut: bool
    """The process was killed while it wrote the line after the last entry."""


class Journal:
    """Appends to a journal; a file that already holds lines gets the line that marks a resume."""

    def __init__(self, path: Path) -> None:
        resumed = path.exists() and path.stat().st_size > 0
        cut_bytes = _drop_cut_line(path) if resumed else 0
        self._file = path.open("ab")
        self._pending = bytearray()
        self._flushed_at = float("-inf")
        if resumed:
            self._append({"resumed": True, "time": time.time(), "cut_bytes": cut_bytes})
            self.flush()

    def record(self, event: Event, now: Seconds, commands: Sequence[Command]) -> None:
        """Append what the planner answered to `event` at `now`."""
        self._append({"now": now, "event": _tagged(event), "commands": [_tagged(command) for command in commands]})
        self.tick(now)

    def tick(self, now: Seconds) -> None:
        """Flush when that is due; to be called while no events come, so that no line waits longer than FLUSH_S."""
        if len(self._pending) >= FLUSH_BYTES or now >= self._flushed_at + FLUSH_S:
            self.flush()
            self._flushed_at = now

    def flush(self) -> None:
        """Hand every line to the operating system: it outlives this process."""
        self._file.write(self._pending)
        self._file.flush()
        self._pending.clear()

    def close(self) -> None:
        """Flush and close; the journal takes no more."""
        self.flush()
        self._file.close()

    def _append(self, line: dict[str, Any]) -> None:
        _ENCODER.encode_into(line, self._pending, -1)
        self._pending += b"\n"


def read_journal(path: Path) -> Iterator[Segment]:
    """Yield the segments in order; a cut last line is left out and told by `Segment.cut`.

    Raises DataError naming file and line when any other line is not one that Journal writes.
    """
    entries: list[Entry] = []
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    cut = False
    with file:
        for number, text in enumerate(file, start=1):
            if not text.endswith(b"\n"):
                cut = True
                continue
            try:
                line = _DECODER.decode(text)
                if "resumed" not in line:
                    entries.append(_entry(number, line))
                    continue
                mark = msgspec.convert(line, _Mark)
            except msgspec.MsgspecError as error:
                raise DataError(f"{path}:{number}: not a line of a journal: {error}") from None
            yield Segment(entries=tuple(entries), cut=mark.cut_bytes > 0)
            entries = []
    yield Segment(entries=tuple(entries), cut=cut)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    now: float
    event: dict[str, Any]
    commands: list[dict[str, Any]]


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    resumed: bool
    time: float
    cut_bytes: int


def _entry(number: int, line: dict[str, Any]) -> Entry:
    parts = msgspec.convert(line, _Line)
    commands = tuple(_untagged(command, _COMMANDS) for command in parts.commands)
    return Entry(line=number, now=parts.now, event=_untagged(parts.event, _EVENTS), commands=commands)


def _tagged(record: Event | Command) -> dict[str, Any]:
    return {"type": type(record).__name__} | {name: getattr(record, name) for name in _names(type(record))}


@cache
def _names(kind: type[Event | Command]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _untagged(record: dict[str, Any], kinds: dict[str, type[_T]]) -> _T:
    name = record.pop("type", None)
    if name not in kinds:
        raise msgspec.ValidationError(f"type is {name!r}, allowed are {', '.join(sorted(kinds))}")
    return msgspec.convert(record, kinds[name])


def _drop_cut_line(path: Path) -> int:
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0) as content:
            size, keep = len(content), content.rfind(b"\n") + 1
        file.truncate(keep)
    return size - keep
