"""Rows of a server, taken over into the index of an engine process."""

from collections.abc import Sequence, Set
from typing import TypeAlias

import numpy as np

from sestina.core.ids import GroupId
from sestina.drafting.errors import DraftError
from sestina.drafting.service.entries import GroupEntry, Stream
from sestina.drafting.service.responses import Responses
from sestina.drafting.service.wire import ROW, TOKEN_BYTES, Rows, columns

_Row: TypeAlias = tuple[Stream, int, int, bytes]
"""Stream, offset, end, tokens."""


def take_over(responses: Responses, rows: Rows, groups: Set[GroupId]) -> None:
    """Append what the index lacks of these groups; what would leave a gap has its group fetched anew."""
    wanted: list[_Row] = []
    at, said = 0, rows.tokens
    for group, request, offset, length in columns(rows.columns, ROW).tolist():
        tokens, at = said[at : at + length * TOKEN_BYTES], at + length * TOKEN_BYTES
        if group not in groups:
            continue
        entry = responses.groups[group]
        stream = entry.streams.get(request) or _stream(responses, entry, request)
        if stream is None:
            continue
        # What is most often sent: the next of what was never decoded here.
        usual = stream.log is None and offset == stream.count and not stream.severed
        if usual or _wants(responses, stream, offset, offset + length, tokens):
            wanted.append((stream, offset, offset + length, tokens))
    if wanted and not _append(responses, wanted):
        for row in wanted:
            if not _append(responses, [row]):
                responses.counts["refused_rows"] += 1
                row[0].sever()


def _stream(responses: Responses, entry: GroupEntry, request: int) -> Stream | None:
    try:
        return responses.start_stream(entry, request)
    except DraftError:
        responses.counts["refused_rows"] += 1
        return None


def _wants(responses: Responses, stream: Stream, offset: int, end: int, tokens: bytes) -> bool:
    if stream.severed:
        return False
    if stream.log is not None and _differs(stream, offset, end, tokens):
        responses.counts["conflicts"] += 1
        stream.sever()
        return False
    if end <= stream.count:
        responses.counts["rows_known"] += 1
        return False
    if stream.running:
        responses.counts["rows_ahead"] += 1
        stream.missed = True
        return False
    if offset > stream.count:
        responses.counts["gaps"] += 1
        stream.entry.cursor = 0
        return False
    return True


def _differs(stream: Stream, offset: int, end: int, tokens: bytes) -> bool:
    """Compare what was decoded here with what the server shows; mutates what is known of the server if it is equal."""
    said = memoryview(stream.log or b"")[offset * TOKEN_BYTES : end * TOKEN_BYTES]
    if said != tokens[: len(said)]:
        return True
    stream.note_known(max(stream.known, end))
    return False


def _append(responses: Responses, rows: Sequence[_Row]) -> bool:
    streams, offsets, ends, tokens = zip(*rows, strict=True)
    bounds = np.zeros(len(rows) + 1, np.int64)
    starts = np.array(offsets, np.int64)
    np.cumsum(np.array(ends, np.int64) - starts, out=bounds[1:])
    handles = np.array([stream.handle for stream in streams], np.int64)
    before = sum(stream.count for stream in streams)
    try:
        responses.index.append(handles, starts, bounds, np.frombuffer(b"".join(tokens), "<i4"))
    except DraftError:
        return False
    for stream, end in zip(streams, ends, strict=True):
        stream.count = end
    responses.counts["tokens_taken_over"] += sum(ends) - before
    return True
