"""What a checkpoint keeps of the groups between rollout and trainer: replay.msgpack."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sestina.controller.ledger import Tally
from sestina.controller.unfinished import KeptSample, moved
from sestina.core.errors import RunDirError
from sestina.core.ids import GroupId
from sestina.core.units import Seconds, Version
from sestina.transport.codec import pack, unpack

_FILE = "replay.msgpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """Groups admitted and not trained on, and the tokens they have so far."""

    kept_s: Seconds
    """When it was taken, on the clock of all its instants."""
    groups: tuple[tuple[GroupId, Version], ...]
    """In order of admission, each with the version it was admitted at."""
    samples: tuple[KeptSample, ...]
    """Those that have a token."""
    tally: Tally
    lengths: tuple[tuple[str, tuple[int, ...], float], ...] = ()
    """What `histopipe` knows of prompts (controller.last_lengths)."""


def write_stream(checkpoint: Path, state: StreamState) -> None:
    """Write the state into the directory of a checkpoint."""
    (checkpoint / _FILE).write_bytes(pack(state))


def read_stream(checkpoint: Path) -> StreamState:
    """Return the state, its instants as if it had been taken just now; raises RunDirError when there is none."""
    path = checkpoint / _FILE
    try:
        state = unpack(path.read_bytes(), StreamState)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDirError(f"{path}: not the groups under way that a checkpoint keeps: {error}") from None
    by_s = time.monotonic() - state.kept_s
    return replace(state, kept_s=state.kept_s + by_s, samples=tuple(moved(each, by_s) for each in state.samples))
