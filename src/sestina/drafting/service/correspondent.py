"""A client's exchange with one server, without the socket: told the time and replies, it says what to ask.

One frame is under way at a time. Meanwhile nothing queues: what is to be said next is read off the streams when it can
be said, so a server that is slow, dead or new is told the same in fewer frames.
"""

from dataclasses import dataclass

from sestina.core.ids import GroupId
from sestina.core.units import Seconds
from sestina.drafting.service.responses import Responses
from sestina.drafting.service.settings import ClientSettings
from sestina.drafting.service.takeover import take_over
from sestina.drafting.service.wire import (
    BATCH_BYTES,
    CACHE_STATE,
    GROUP_STATE,
    RECEIPT,
    ROW_BYTES,
    Answer,
    Ask,
    Columns,
    FrameError,
    Refusal,
    RegisterGroup,
    RowsDraft,
    columns,
    decode_reply,
    encode,
    listed,
)


@dataclass(slots=True, kw_only=True)
class _UnderWay:
    number: int
    deadline_s: Seconds
    num_asked: int
    num_told: int
    """Groups of which all that was unsent is in the frame, counted from the first; the rest waits for the next."""


class Correspondent:
    """What is exchanged with one server about the groups that are its own."""

    def __init__(self, responses: Responses, settings: ClientSettings) -> None:
        self._responses = responses
        self._settings = settings
        self._turn: dict[GroupId, None] = {}
        self._number = 0
        self._next_s: Seconds = 0.0
        self._under_way: _UnderWay | None = None
        self.num_replies = 0
        self.server_counts: dict[str, int] = {}
        """Of the last reply."""
        self.last_error = ""
        """Of the last reply that could not be read, or of the server about a frame that it could not read."""

    def include(self, group: GroupId) -> None:
        """Exchange what is said in a group from here on."""
        self._turn.setdefault(group)

    def wake_at(self) -> Seconds:
        """When `compose` has something to say again, if nothing is received before."""
        return max(self._next_s, self._under_way.deadline_s if self._under_way else 0.0)

    def compose(self, now: Seconds) -> bytes | None:
        """Return the next frame; None while one is under way, before its time, and when there is no group."""
        if now < self.wake_at():
            return None
        self._responses.counts["lost_exchanges"] += self._under_way is not None
        self._under_way = None
        ask = self._ask(now)
        return encode(ask) if ask else None

    def postpone(self, now: Seconds) -> None:
        """The server cannot be reached; what is under way is lost, and the next frame is composed after a period."""
        self._responses.counts["lost_exchanges"] += self._under_way is not None
        self._under_way = None
        self._next_s = now + self._settings.period_s

    def withdraw(self) -> None:
        """The frame could not be sent; it is composed anew when the period is over."""
        self._under_way = None

    def receive(self, frame: bytes, now: Seconds) -> None:
        """Take a reply in, late ones as well."""
        try:
            reply = decode_reply(frame)
        except FrameError as error:
            reply = Refusal(error=str(error))
        if isinstance(reply, Refusal):
            self._responses.counts["refused_frames"] += 1
            self.last_error = reply.error
            self._under_way = None
            return
        under_way = self._under_way
        latest = under_way is not None and under_way.number == reply.number
        self._take(reply, now, latest=latest)
        if under_way is not None and latest:
            self._under_way = None
            self._rotate(min(under_way.num_told, reply.num_fetched), under_way)

    def _ask(self, now: Seconds) -> Ask | None:
        draft, room, told = RowsDraft(), self._responses.has_room(), 0
        self._turn = {group: None for group in self._turn if group in self._responses.groups}
        registered, fetched = list[RegisterGroup](), list[int]()
        for group in self._turn:
            entry = self._responses.groups[group]
            if draft.num_bytes >= BATCH_BYTES:
                break
            if entry.alien or now < entry.paused_until:
                told += 1
                continue
            draft.num_bytes += ROW_BYTES
            if not entry.registered:
                draft.num_bytes += len(entry.prompt)
                registered.append(RegisterGroup(group, entry.ttl_s, entry.prompt))
            if room:
                fetched += (group, entry.epoch, entry.cursor)
            told += entry.copy_unsent(draft) if entry.unsent else 1
        rows = draft.rows()
        if not (registered or fetched or rows.columns):
            return None
        self._number += 1
        self._next_s = now + self._settings.period_s
        self._under_way = _UnderWay(
            number=self._number,
            deadline_s=now + self._settings.reply_limit_s,
            num_asked=len(fetched) // CACHE_STATE,
            num_told=told,
        )
        return Ask(self._number, registered, listed(fetched), rows)

    def _take(self, reply: Answer, now: Seconds, *, latest: bool) -> None:
        groups = self._responses.groups
        taken = self._note_states(columns(reply.states, GROUP_STATE), latest=latest)
        take_over(self._responses, reply.rows, taken)
        self._note_receipts(columns(reply.receipts, RECEIPT), latest=latest)
        if latest:
            for group in groups.keys() & {*reply.unknown}:
                groups[group].registered = False
        for group in groups.keys() & {*reply.full}:
            groups[group].paused_until = now + self._settings.full_pause_s
            self._responses.counts["pauses"] += 1
        for group in groups.keys() & {*reply.alien}:
            groups[group].alien = True
            self._responses.counts["alien_groups"] += 1
        self.server_counts = reply.counters
        self.num_replies += 1

    def _note_states(self, states: Columns, *, latest: bool) -> set[GroupId]:
        """Return the groups of which the rows go on where the index is."""
        taken = set[GroupId]()
        for group, epoch, start, end in states.tolist():
            entry = self._responses.groups.get(group)
            if entry is None:
                continue
            if epoch != entry.epoch:
                # A late reply may come from an earlier life of the server; the latest does not.
                if not latest:
                    continue
                entry.adopt(epoch)
            if start <= entry.cursor:
                entry.registered = True
                entry.cursor = max(entry.cursor, end)
                taken.add(group)
        return taken

    def _note_receipts(self, receipts: Columns, *, latest: bool) -> None:
        """Take note of what the server has; of the latest reply that is all, as nothing was sent since."""
        for group, request, epoch, count, conflict in receipts.tolist():
            entry = self._responses.groups.get(group)
            stream = entry.streams.get(request) if entry is not None and entry.epoch == epoch else None
            if stream is None:
                continue
            if conflict:
                stream.sever()
                self._responses.counts["conflicts"] += 1
            else:
                stream.note_known(count if latest else max(stream.known, count))

    def _rotate(self, num_done: int, under_way: _UnderWay) -> None:
        """Begin the next frame with the first group that this one had no room for."""
        if num_done < len(self._turn) and under_way.num_asked:
            for group in list(self._turn)[: max(1, num_done)]:
                self._turn[group] = self._turn.pop(group)
