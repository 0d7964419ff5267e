"""What a client knows of one group and of one response."""

from dataclasses import dataclass, field

from sestina.core.ids import GroupId
from sestina.core.units import Seconds
from sestina.drafting.service.wire import MAX_RUN_TOKENS, TOKEN_BYTES, RowsDraft


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
        num_said = self.num_said
        self.known = min(count, num_said)
        if self.known < num_said and not self.severed:
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

    def copy_unsent(self, draft: RowsDraft) -> bool:
        """Add what the server may lack; False when not all had room."""
        for request in self.unsent:
            stream = self.streams[request]
            known = stream.known
            unsent = (stream.log or b"")[known * TOKEN_BYTES :]
            while unsent:
                if draft.full:
                    return False
                draft.add(self.group, request, known, unsent[: MAX_RUN_TOKENS * TOKEN_BYTES])
                unsent, known = unsent[MAX_RUN_TOKENS * TOKEN_BYTES :], known + MAX_RUN_TOKENS
        return True
