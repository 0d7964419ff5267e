"""What a client and a draft server tell each other: MessagePack of structs and columns, one frame each way.

A client has one Ask under way to a server, answered with an Answer or a Refusal. All of it may be lost, repeated or
overtaken: every part says where it belongs (epoch and cursor, offset), so that taking it twice changes nothing.
"""

from array import array
from typing import Annotated, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
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

MAX_NATURAL = 2**62

ROW, CACHE_STATE, GROUP_STATE, RECEIPT = 4, 3, 4, 5
"""Width of columns."""
GROUP, LENGTH = 0, 3
"""Columns: the first of all of them, the last of rows."""

Columns: TypeAlias = npt.NDArray[np.int64]
"""[rows, width]; they travel as int64, little-endian, row after row."""
Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_NATURAL)]
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


class Rows(_Row, frozen=True):
    """update_cst, and what is fetched: tokens of some requests, each from an offset of its response on."""

    columns: bytes
    """[rows, 4] group, request, offset, length"""
    tokens: bytes


class Ask(_Row, frozen=True, tag="ask"):
    """A client's frame. The server registers, then fetches, then updates: nobody is sent back what he brings."""

    number: Natural
    registered: list[RegisterGroup]
    fetched: bytes
    """fetch_cst: [groups, 3] group, epoch, cursor. Its log from the cursor on when it is still that of the epoch, else
    from its start."""
    updates: Rows


class Answer(_Row, frozen=True, tag="answer"):
    """A server's frame."""

    number: Natural
    num_fetched: Natural
    """Groups that were fetched, of those asked for, from the first on; the others had no room."""
    states: bytes
    """[groups, 4] group, epoch, start, end: of those of which there is something new. The rows of the group are its log
    from start to end, and its client has or sent all before the end."""
    rows: Rows
    receipts: bytes
    """[rows, 5] group, request, epoch, count, conflict: the server has `count` tokens of a response that was updated,
    fewer than sent after a gap or without memory; or what was sent differs from what it has, and was not taken."""
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

NO_ROWS = Rows(columns=b"", tokens=b"")


class RowsDraft:
    """Rows under construction, up to BATCH_BYTES."""

    def __init__(self) -> None:
        self._columns: list[int] = []
        self._tokens: list[bytes | bytearray] = []
        self.num_bytes = 0
        """To which whoever fills the frame adds what else it carries."""

    def add(self, group: int, request: int, offset: int, tokens: bytes | bytearray) -> None:
        """Add one row."""
        self._columns += (group, request, offset, len(tokens) // TOKEN_BYTES)
        self._tokens.append(tokens)
        self.num_bytes += ROW_BYTES + len(tokens)

    @property
    def full(self) -> bool:
        """Whether the next frame should carry what follows."""
        return self.num_bytes >= BATCH_BYTES

    def rows(self) -> Rows:
        """Return what was added."""
        return Rows(listed(self._columns), b"".join(self._tokens))


def encode(message: Ask | Reply) -> bytes:
    """Return a message as it travels."""
    return _ENCODER.encode(message)


def decode_ask(frame: bytes) -> Ask:
    """Return what a client asks; raises FrameError."""
    ask = _decode(_ASKS, frame)
    _check(ask.updates)
    _check_columns(ask.fetched, CACHE_STATE, "states")
    for register in ask.registered:
        if len(register.prompt) % TOKEN_BYTES:
            raise FrameError(f"group {register.group}: a prompt of {len(register.prompt)} bytes")
    return ask


def decode_reply(frame: bytes) -> Reply:
    """Return what a server replies; raises FrameError."""
    reply = _decode(_REPLIES, frame)
    if isinstance(reply, Answer):
        _check(reply.rows)
        _check_columns(reply.states, GROUP_STATE, "states")
        _check_columns(reply.receipts, RECEIPT, "receipts")
    return reply


def columns(raw: bytes, width: int) -> Columns:
    """Return [rows, width] of a frame that was checked."""
    return np.frombuffer(raw, "<i8").reshape(-1, width)


def listed(values: list[int]) -> bytes:
    """Return columns, row after row, as they travel."""
    return raw_columns(np.frombuffer(array("q", values), np.int64))


def raw_columns(values: Columns) -> bytes:
    """Return columns as they travel."""
    return values.astype("<i8", copy=False).tobytes()


def _check(rows: Rows) -> None:
    lengths = _check_columns(rows.columns, ROW, "rows")[:, LENGTH]
    if not len(lengths) and not rows.tokens:
        return
    if lengths.min(initial=1) < 1 or lengths.max(initial=1) > MAX_FRAME_BYTES:
        raise FrameError(f"rows of {lengths.min()} to {lengths.max()} tokens: must be 1 to {MAX_FRAME_BYTES}")
    if lengths.sum() * TOKEN_BYTES != len(rows.tokens):
        raise FrameError(f"rows of {lengths.sum()} tokens with {len(rows.tokens)} bytes of them")


def _check_columns(raw: bytes, width: int, name: str) -> Columns:
    if len(raw) % (8 * width):
        raise FrameError(f"{name} of {len(raw)} bytes: must be a multiple of {8 * width}")
    found = columns(raw, width)
    if len(found) and (found.min() < 0 or found.max() > MAX_NATURAL):
        raise FrameError(f"{name} with {found.min()} and {found.max()}: must be 0 to {MAX_NATURAL}")
    return found


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
