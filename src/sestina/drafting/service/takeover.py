"""Rows of a server, taken over into the index of an engine process."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from sestina.core.ids import GroupId
from sestina.drafting.errors import DraftError
from sestina.drafting.service.entries import GroupEntry, Stream
from sestina.drafting.service.responses import Responses
from sestina.drafting.service.wire import TOKEN_BYTES, Rows, each_row


@dataclass(frozen=True, slots=True)
class _Row:
    stream: Stream
    offset: int
    tokens: memoryview

    @property
    def end(self) -> int:
        return self.offset + len(self.tokens) // TOKEN_BYTES


def take_over(responses: Responses, rows: Rows, groups: Set[GroupId]) -> None:
    """Append what the index lacks of these groups; what would leave a gap has its group fetched anew."""
    wanted: list[_Row] = []
    for group, request, offset, tokens in each_row(rows):
        entry = responses.groups.get(group)
        if entry is not None and group in groups:
            stream = _stream(responses, entry, request)
            if stream is not None and _wants(responses, row := _Row(stream, offset, tokens)):
                wanted.append(row)
    if wanted and not _append(responses, wanted):
        for row in wanted:
            if not _append(responses, [row]):
                responses.counts["refused_rows"] += 1
                row.stream.sever()


def _stream(responses: Responses, entry: GroupEntry, request: int) -> Stream | None:
    stream = entry.streams.get(request)
    if stream is not None:
        return stream
    try:
        return responses.start_stream(entry, request)
    except DraftError:
        responses.counts["refused_rows"] += 1
        return None


def _wants(responses: Responses, row: _Row) -> bool:
    stream = row.stream
    if stream.severed:
        return False
    if stream.log is not None:
        said = memoryview(stream.log)[row.offset * TOKEN_BYTES : row.end * TOKEN_BYTES]
        if said != row.tokens[: len(said)]:
            responses.counts["conflicts"] += 1
            stream.sever()
            return False
        stream.note_known(max(stream.known, row.end))
    if row.end <= stream.count:
        responses.counts["rows_known"] += 1
        return False
    if stream.running:
        responses.counts["rows_ahead"] += 1
        stream.missed = True
        return False
    if row.offset > stream.count:
        responses.counts["gaps"] += 1
        stream.entry.cursor = 0
        return False
    return True


def _append(responses: Responses, rows: Sequence[_Row]) -> bool:
    bounds = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row.tokens) // TOKEN_BYTES for row in rows], out=bounds[1:])
    handles = np.array([row.stream.handle for row in rows], np.int64)
    offsets = np.array([row.offset for row in rows], np.int64)
    try:
        responses.index.append(handles, offsets, bounds, np.frombuffer(b"".join(row.tokens for row in rows), "<i4"))
    except DraftError:
        return False
    for row in rows:
        responses.counts["tokens_taken_over"] += row.end - row.stream.count
        row.stream.count = row.end
    return True
