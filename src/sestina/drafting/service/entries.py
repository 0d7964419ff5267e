"""What a client knows of one group and of one response."""

from dataclasses import dataclass, field

from sestina.core.ids import GroupId
from sestina.core.units import Seconds
from sestina.drafting.service.wire import MAX_RUN_TOKENS, TOKEN_BYTES, Receipt, RowsDraft


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """One response."""

    entry: "GroupEntry"
    request: int
    handle: int
    count: int = 0
    """Tokens that the index has."""
    log: bytearray | None = None
    """Tokens that this process knows of itself, from the first on; None when it was never decoded here."""
    known: int = 0
    """Tokens of `log` that the server has."""
    running: bool = False
    """Decoded here: it grows by append alone."""
    missed: bool = False
    """The server had more of it while it ran here."""
    severed: bool = False
    """Differs from what the server has: each side keeps its own."""

    @property
    def num_said(self) -> int:
        """Tokens of `log`."""
        return len(self.log or b"") // TOKEN_BYTES

    def sever(self) -> None:
        """Exchange nothing about it any more."""
        self.severed = True
        self.entry.unsent.discard(self.request)

    def note_known(self, count: int) -> None:
        """The server has `count` of the tokens."""
        self.known = min(count, self.num_said)
        if self.known < self.num_said and not self.severed:
            self.entry.unsent.add(self.request)
        else:
            self.entry.unsent.discard(self.request)


@dataclass(slots=True, kw_only=True, eq=False)
class GroupEntry:
    """One group."""

    group: GroupId
    prompt: bytes
    ttl_s: Seconds
    used_s: Seconds | None = None
    """When it was last seen in use; None until time is told."""
    epoch: int = 0
    cursor: int = 0
    """All of the server's log before it, in that epoch, is in the index or came from here."""
    registered: bool = False
    alien: bool = False
    """Has another prompt on the server: nothing is exchanged."""
    paused_until: Seconds = 0.0
    num_running: int = 0
    streams: dict[int, Stream] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)
    """Requests with tokens that the server may lack."""

    def adopt(self, epoch: int) -> None:
        """The server holds another group of this number than before: it is to be told everything."""
        self.epoch, self.cursor = epoch, 0
        for stream in self.streams.values():
            stream.note_known(0)

    def note_receipt(self, receipt: Receipt, *, exact: bool) -> bool:
        """Take note of what the server has; False when it has something else. `exact`: nothing was sent since."""
        stream = self.streams.get(receipt.request)
        if stream is None or receipt.epoch != self.epoch:
            return True
        if receipt.conflict:
            stream.sever()
            return False
        stream.note_known(receipt.count if exact else max(stream.known, receipt.count))
        return True

    def copy_unsent(self, draft: RowsDraft) -> bool:
        """Add what the server may lack; False when not all had room."""
        for request in self.unsent:
            stream = self.streams[request]
            if stream.num_said - stream.known <= MAX_RUN_TOKENS:
                if draft.full:
                    return False
                draft.add(self.group, request, stream.known, (stream.log or b"")[stream.known * TOKEN_BYTES :])
                continue
            with memoryview(stream.log or b"") as log:
                for start in range(stream.known, stream.num_said, MAX_RUN_TOKENS):
                    if draft.full:
                        return False
                    end = min(start + MAX_RUN_TOKENS, stream.num_said)
                    draft.add(self.group, request, start, log[start * TOKEN_BYTES : end * TOKEN_BYTES])
        return True
