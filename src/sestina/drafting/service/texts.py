"""One group as a server holds it: the text of each response, and the log of which grew when."""

from array import array

from sestina.core.units import Seconds
from sestina.drafting.service.wire import BATCH_BYTES, MAX_RUN_TOKENS, ROW_BYTES, TOKEN_BYTES, RowsDraft

GROUP_BYTES, STREAM_BYTES = 1000, 300
"""Memory that a group and a response take besides what they say, rounded up."""
RUN = 3
"""Entries of a run: response, offset, length."""
RUN_BYTES = 27
GROWTH = 9 / 8
"""Capacity of a growing text over its length."""


class GroupTexts:
    """A group's prompt, responses and log; the epoch tells it from an earlier group of the same number.

    The log is a sequence of runs, each of one response; a cursor is a number of runs.
    """

    def __init__(self, epoch: int, ttl_s: Seconds, prompt: bytes) -> None:
        self.epoch = epoch
        self.ttl_s = ttl_s
        self.used_s: Seconds = 0.0
        self.prompt = prompt
        self.num_bytes = GROUP_BYTES + len(prompt)
        self._texts: dict[int, bytearray] = {}
        self._runs = array("q")

    @property
    def end(self) -> int:
        """Cursor of what comes next."""
        return len(self._runs) // RUN

    def count(self, request: int) -> int:
        """Return the tokens of a response."""
        return len(self._texts.get(request, b"")) // TOKEN_BYTES

    def differs(self, request: int, offset: int, tokens: memoryview) -> bool:
        """Return whether tokens contradict those that are there."""
        held = self._texts.get(request, b"")[offset * TOKEN_BYTES : offset * TOKEN_BYTES + len(tokens)]
        return tokens[: len(held)] != held

    def extend(self, request: int, offset: int, tokens: memoryview) -> None:
        """Append what of these tokens is not there; `offset` is at most the response's count."""
        text = self._texts.get(request)
        if text is None:
            text = self._texts[request] = bytearray()
            self.num_bytes += STREAM_BYTES
        count = len(text) // TOKEN_BYTES
        fresh = tokens[(count - offset) * TOKEN_BYTES :]
        end = count + len(fresh) // TOKEN_BYTES
        for start in range(count, end, MAX_RUN_TOKENS):
            length = end - start
            self._runs.extend((request, start, length if length < MAX_RUN_TOKENS else MAX_RUN_TOKENS))
            self.num_bytes += RUN_BYTES
        text += fresh
        self.num_bytes += int(len(fresh) * GROWTH)

    def copy_since(self, cursor: int, group: int, draft: RowsDraft) -> int:
        """Add the log from a cursor on, one row for each response, as far as there is room; returns where it ends."""
        if cursor == self.end - 1:  # What is most often asked, at little cost.
            request, first, length = self._runs[-RUN:]
            draft.add(group, request, first, self._texts[request][first * TOKEN_BYTES : (first + length) * TOKEN_BYTES])
            return cursor + 1
        if cursor == self.end:
            return cursor
        room = BATCH_BYTES - draft.num_bytes
        runs = self._runs[cursor * RUN : (cursor + max(0, room) // TOKEN_BYTES + 1) * RUN].tolist()
        spans: dict[int, tuple[int, int]] = {}
        for request, offset, length in zip(runs[::RUN], runs[1::RUN], runs[2::RUN], strict=True):
            if room <= 0:
                break
            first, _ = spans.get(request, (offset, 0))
            spans[request] = (first, offset + length)
            room -= ROW_BYTES + length * TOKEN_BYTES
            cursor += 1
        for request, (first, end) in spans.items():
            with memoryview(self._texts[request]) as text:
                draft.add(group, request, first, text[first * TOKEN_BYTES : end * TOKEN_BYTES])
        return cursor
