"""The index of an engine process and what it knows of each response: those decoded here, and their siblings elsewhere.

A response that runs here grows by `append` alone, so that its place in the index is where decoding is. Everything else
is taken over from servers (takeover.py), by request and offset.
"""

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sestina.core.ids import GroupId
from sestina.core.units import Seconds, TokenArray
from sestina.drafting.drafts import HandleArray
from sestina.drafting.errors import ExistsError, IndexFullError, NotFoundError, OffsetConflictError, OutOfRangeError
from sestina.drafting.index import SuffixIndex
from sestina.drafting.service.entries import GroupEntry, Stream
from sestina.drafting.service.wire import MAX_PROMPT_TOKENS, MAX_TTL_S, TOKEN_BYTES

RERUNS = 1 << 40
"""Requests of the index from here on are responses that began again, before the end of what it had of them."""
OTHERS_SHARE = 7 / 8
"""Of the index's memory limit: what servers send is taken over until then; the rest is for what is decoded here."""
LOOK_S = 1.0
"""Between two looks for groups past their time."""

_Result = TypeVar("_Result")


class Responses:
    """Groups and streams over an index that nobody else starts anything in."""

    def __init__(self, index: SuffixIndex) -> None:
        self.index = index
        self.groups: dict[GroupId, GroupEntry] = {}
        self.counts: Counter[str] = Counter()
        self._by_handle: dict[int, Stream] = {}
        self._reruns = RERUNS
        self._look_at: Seconds = 0.0

    def register_group(self, group: GroupId, prompt: TokenArray, ttl_s: Seconds) -> None:
        """See DraftClient.register_group."""
        if not 0 < ttl_s <= MAX_TTL_S:
            raise OutOfRangeError(f"group {group}: ttl_s {ttl_s}: must be above 0, at most {MAX_TTL_S:g}")
        if len(prompt) > MAX_PROMPT_TOKENS:
            raise OutOfRangeError(f"group {group}: a prompt of {len(prompt)} tokens: at most {MAX_PROMPT_TOKENS}")
        self._note_evicted()
        if group in self.groups:
            self.groups[group].ttl_s = ttl_s
            return
        self._with_room(lambda: self.index.start_group(group, prompt))
        self.groups[group] = GroupEntry(group=group, prompt=raw(prompt), ttl_s=ttl_s)

    def drop_group(self, group: GroupId) -> None:
        """See DraftClient.drop_group."""
        self.index.drop_group(group)
        self._forget(group)

    def forget(self) -> None:
        """See DraftClient.forget."""
        for group in self.index.groups:
            self.index.drop_group(group)
        self.index.take_evicted()
        self.groups.clear()
        self._by_handle.clear()

    def start_request(self, group: GroupId, request: int, said: TokenArray) -> int:
        """See DraftClient.start_request."""
        entry = self.groups.get(group)
        if entry is None:
            raise NotFoundError(f"group {group}: was never registered, or is gone")
        stream = entry.streams.get(request)
        if stream is not None and stream.running:
            raise ExistsError(f"group {group}, request {request}: runs here already")
        if stream is None:
            stream = self.start_stream(entry, request)
        if not self._resume(stream, said):
            self._reruns += 1
            self.counts["reruns"] += 1
            stream = self.start_stream(entry, request, self._reruns)
            self._resume(stream, said)
        stream.log, stream.running = bytearray(raw(said)), True
        stream.note_known(stream.known)
        entry.num_running += 1
        return stream.handle

    def append(
        self, handles: HandleArray, offsets: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], tokens: TokenArray
    ) -> None:
        """See DraftClient.append."""
        streams = [self._stream(handle) for handle in handles.tolist()]
        for stream in streams:
            if not stream.running:
                raise NotFoundError(f"handle {stream.handle}: its request was stopped")
        self._with_room(lambda: self.index.append(handles, offsets, bounds, tokens))
        said, ends = raw(tokens), bounds.tolist()
        for stream, offset, start, end in zip(streams, offsets.tolist(), ends, ends[1:], strict=False):
            log = stream.log
            assert log is not None
            log += said[start * TOKEN_BYTES + len(log) - offset * TOKEN_BYTES : end * TOKEN_BYTES]
            stream.count = len(log) // TOKEN_BYTES
            if not stream.severed:
                stream.entry.unsent.add(stream.request)

    def stop_request(self, handle: int) -> None:
        """See DraftClient.stop_request."""
        stream = self._stream(handle)
        if stream.running:
            stream.running = False
            stream.entry.num_running -= 1
            stream.entry.used_s = None
            if stream.missed:
                stream.entry.cursor, stream.missed = 0, False

    def expire(self, now: Seconds) -> None:
        """Drop groups that nothing ran in for their time to live, and forget those that the index has evicted."""
        self._note_evicted()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        for entry in list(self.groups.values()):
            if entry.num_running or entry.used_s is None:
                entry.used_s = now
            elif now - entry.used_s > entry.ttl_s:
                self.drop_group(entry.group)
                self.counts["expired_groups"] += 1

    def has_room(self) -> bool:
        """Return whether the index may take over more, after dropping what nothing runs in."""
        limit = self.index.settings.memory_limit_bytes * OTHERS_SHARE
        while self.index.num_bytes > limit:
            if not self._drop_idle():
                return False
        return True

    @property
    def num_unsent_tokens(self) -> int:
        """Tokens said here that servers may lack."""
        streams = (entry.streams[request] for entry in self.groups.values() for request in entry.unsent)
        return sum(stream.num_said - stream.known for stream in streams)

    def start_stream(self, entry: GroupEntry, request: int, number: int | None = None) -> Stream:
        """Start a response in the index, as request `number` of it; raises IndexFullError, OutOfRangeError."""
        number = request if number is None else number
        handle = self._with_room(lambda: self.index.start_request(entry.group, number))
        stream = Stream(entry=entry, request=request, handle=handle)
        entry.streams[request] = stream
        self._by_handle[handle] = stream
        return stream

    def _resume(self, stream: Stream, said: TokenArray) -> bool:
        if stream.count > len(said):
            return False
        try:
            self.index.append(np.array([stream.handle]), np.zeros(1, np.int64), np.array([0, len(said)]), said)
        except OffsetConflictError:
            return False
        stream.count = len(said)
        return True

    def _stream(self, handle: int) -> Stream:
        stream = self._by_handle.get(handle)
        if stream is None:
            raise NotFoundError(f"handle {handle}: was never started here, or its group is gone")
        return stream

    def _with_room(self, work: Callable[[], _Result]) -> _Result:
        while True:
            try:
                return work()
            except IndexFullError:
                if not self._drop_idle():
                    raise

    def _drop_idle(self) -> bool:
        idle = [entry for entry in self.groups.values() if not entry.num_running and entry.used_s is not None]
        if not idle:
            return False
        self.drop_group(min(idle, key=lambda entry: entry.used_s or 0.0).group)
        self.counts["dropped_for_memory"] += 1
        return True

    def _note_evicted(self) -> None:
        for group in self.index.take_evicted():
            self._forget(group)

    def _forget(self, group: GroupId) -> None:
        entry = self.groups.pop(group, None)
        for handle in [h for h, stream in self._by_handle.items() if stream.entry is entry]:
            del self._by_handle[handle]


def raw(tokens: TokenArray) -> bytes:
    """Return tokens as they travel."""
    return tokens.astype("<i4", copy=False).tobytes()
