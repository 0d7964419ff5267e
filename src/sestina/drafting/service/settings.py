"""What a server and a client are set to."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from sestina.core.errors import UserError
from sestina.core.units import Seconds

MAX_VOCAB = 1 << 24


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server holds."""

    vocab_size: Annotated[int, Meta(ge=1, le=MAX_VOCAB)]
    memory_limit_bytes: Annotated[int, Meta(ge=1)] = 1 << 34
    """Beyond it, groups that nobody asked for in `idle_s` are evicted, the longest unused first."""
    idle_s: Annotated[float, Meta(gt=0)] = 10.0
    """A group in use is not evicted for another: what does not fit is refused until something ends."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server process is started with, as one line of JSON on its stdin."""

    keys: str
    """Folder of `make_keys`."""
    store: StoreSettings
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0 takes any; a server that takes another's place takes its port."""

    @classmethod
    def from_line(cls, line: bytes) -> "ServerSettings":
        """Return the settings of a line of JSON; raises UserError."""
        try:
            return msgspec.json.decode(line, type=cls)
        except msgspec.MsgspecError as error:
            raise UserError(f"draft server: settings of {len(line)} bytes on stdin: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client keeps in step."""

    period_s: Seconds = 0.02
    """From one exchange with a server to the next, at least; what is produced in between goes together."""
    reply_limit_s: Seconds = 1.0
    """For a reply, before the exchange counts as lost and the next one says it again."""
    full_pause_s: Seconds = 5.0
    """How long a group is left alone for which a server had no memory."""
