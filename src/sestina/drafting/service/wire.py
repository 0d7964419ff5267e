"""What a client and a draft server tell each other: MessagePack of structs, one frame each way.

A client has one Ask under way to a server, answered with an Answer or a Refusal. All of it may be lost, repeated or
overtaken: every part says where it belongs (epoch and cursor, offset), so that taking it twice changes nothing.
"""

from collections.abc import Iterator
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from sestina.core.errors import RunError

MAX_FRAME_BYTES = 1 << 22
"""Of a frame; a server's socket ends the connection of a peer that sends more."""
BATCH_BYTES = 1 << 20
"""Rows are added to a frame until they come to this."""
TOKEN_BYTES = 4
MAX_RUN_TOKENS = 1 << 13
"""Rows are cut to this, so that a frame exceeds BATCH_BYTES by little."""
MAX_PROMPT_TOKENS = (MAX_FRAME_BYTES - 2 * BATCH_BYTES) // TOKEN_BYTES
ROW_BYTES = 40
"""More than what a row, a state or a receipt takes besides its tokens."""

MAX_TTL_S = 1e8

Natural: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]
Length: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_FRAME_BYTES)]
Ttl: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_TTL_S)]


class FrameError(RunError):
    """A frame is not what this version of the service sends."""


class _Row(msgspec.Struct, frozen=True, array_like=True): ...


class RegisterGroup(_Row, frozen=True):
    """register_group: hold this group for `ttl_s` after anyone last asked for it."""

    group: Natural
    ttl_s: Ttl
    prompt: bytes
    """Tokens, int32 little-endian, as all tokens here."""


class CacheState(_Row, frozen=True):
    """fetch_cst: the group's log, from `cursor` on when the group is still that of `epoch`, else from its start."""

    group: Natural
    epoch: Natural
    cursor: Natural


class Rows(_Row, frozen=True):
    """update_cst, and what is fetched: tokens of some requests, each from an offset of its response on; columns."""

    groups: list[Natural]
    requests: list[Natural]
    offsets: list[Natural]
    lengths: list[Length]
    tokens: bytes


class Ask(_Row, frozen=True, tag="ask"):
    """A client's frame. The server registers, then fetches, then updates: nobody is sent back what he brings."""

    number: Natural
    registered: list[RegisterGroup]
    fetched: list[CacheState]
    updates: Rows


class GroupState(_Row, frozen=True):
    """The rows of this group are its log from `start` to `end`, and its client has or sent all before `end`."""

    group: Natural
    epoch: Natural
    start: Natural
    end: Natural


class Receipt(_Row, frozen=True):
    """The server has `count` tokens of a response that was updated: fewer than sent after a gap, or without memory."""

    group: Natural
    request: Natural
    epoch: Natural
    count: Natural
    conflict: bool
    """What was sent differs from what the server has, and was not taken."""


class Answer(_Row, frozen=True, tag="answer"):
    """A server's frame."""

    number: Natural
    num_fetched: Natural
    """Groups that were fetched, of those asked for, from the first on; the others had no room."""
    states: list[GroupState]
    """Of those of which there is something new."""
    rows: Rows
    receipts: list[Receipt]
    unknown: list[Natural]
    """Groups to register first: never were, evicted, or of an earlier life of the server."""
    full: list[Natural]
    """Groups for which there is no memory while other groups are in use."""
    alien: list[Natural]
    """Groups registered with another prompt."""
    counters: dict[str, int]


class Refusal(_Row, frozen=True, tag="refusal"):
    """The frame could not be read."""

    error: str


Reply: TypeAlias = Answer | Refusal
_Message = TypeVar("_Message")

NO_ROWS = Rows(groups=[], requests=[], offsets=[], lengths=[], tokens=b"")


class RowsDraft:
    """Rows under construction, up to BATCH_BYTES."""

    def __init__(self) -> None:
        self._groups: list[int] = []
        self._requests: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._tokens = bytearray()
        self.num_bytes = 0
        """To which whoever fills the frame adds what else it carries."""

    def add(self, group: int, request: int, offset: int, tokens: bytes | bytearray | memoryview) -> None:
        """Add one row."""
        self._groups.append(group)
        self._requests.append(request)
        self._offsets.append(offset)
        self._lengths.append(len(tokens) // TOKEN_BYTES)
        self._tokens += tokens
        self.num_bytes += ROW_BYTES + len(tokens)

    @property
    def full(self) -> bool:
        """Whether the next frame should carry what follows."""
        return self.num_bytes >= BATCH_BYTES

    def rows(self) -> Rows:
        """Return what was added."""
        return Rows(self._groups, self._requests, self._offsets, self._lengths, bytes(self._tokens))


def encode(message: Ask | Reply) -> bytes:
    """Return a message as it travels."""
    return _ENCODER.encode(message)


def decode_ask(frame: bytes) -> Ask:
    """Return what a client asks; raises FrameError."""
    ask = _decode(_ASKS, frame)
    _check(ask.updates)
    for register in ask.registered:
        if len(register.prompt) % TOKEN_BYTES:
            raise FrameError(f"group {register.group}: a prompt of {len(register.prompt)} bytes")
    return ask


def decode_reply(frame: bytes) -> Reply:
    """Return what a server replies; raises FrameError."""
    reply = _decode(_REPLIES, frame)
    if isinstance(reply, Answer):
        _check(reply.rows)
    return reply


def each_row(rows: Rows) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield group, request, offset and tokens of each row."""
    at, tokens = 0, memoryview(rows.tokens)
    for group, request, offset, length in zip(rows.groups, rows.requests, rows.offsets, rows.lengths, strict=True):
        end = at + length * TOKEN_BYTES
        yield group, request, offset, tokens[at:end]
        at = end


def _check(rows: Rows) -> None:
    columns = (rows.groups, rows.requests, rows.offsets, rows.lengths)
    if len({len(column) for column in columns}) > 1:
        raise FrameError(f"rows of columns of {[len(column) for column in columns]} entries: must be of one length")
    if sum(rows.lengths) * TOKEN_BYTES != len(rows.tokens):
        raise FrameError(f"rows of {sum(rows.lengths)} tokens with {len(rows.tokens)} bytes of them")


def _decode(decoder: "msgspec.msgpack.Decoder[_Message]", frame: bytes) -> _Message:
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(frame)} bytes: must be at most {MAX_FRAME_BYTES}")
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FrameError(f"a frame of {len(frame)} bytes that says nothing: {error}") from None


_ENCODER = msgspec.msgpack.Encoder()
_ASKS = msgspec.msgpack.Decoder(Ask)
_REPLIES = msgspec.msgpack.Decoder(Reply)
