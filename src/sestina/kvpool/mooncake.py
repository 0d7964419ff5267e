"""The pool as objects of Mooncake's store: memory of all instances, reached from every node.

Mooncake finds room by itself, dropping what was used least recently, if not at once. A store whose master does not
answer is given up with one warning, and every chunk of this instance computes again from there on.
"""

import logging
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from sestina.core.errors import UserError
from sestina.core.units import Seconds, TokenArray, Version
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, head_of
from sestina.kvpool.pool import Stored
from sestina.policies.kv_pool.room import Tier

if TYPE_CHECKING:
    from mooncake.store import MooncakeDistributedStore  # pyright: ignore[reportMissingImports]

PACKAGE = "mooncake-transfer-engine-non-cuda==0.3.13.post1"
CONNECT_S: Seconds = 2.0
"""For a master to take a connection; Mooncake itself would try for a minute and a half."""

BUFFER_BYTES = 64 << 20
"""At least, of what one entry goes through on its way."""

_NO_ROOM = (-200, -600)
"""No segment has room; larger than the buffer."""
_ABSENT = -704

_log = logging.getLogger(__name__)


def check_package() -> None:
    """Raise UserError when Mooncake is not installed, or does not load."""
    try:
        _client()
    except ImportError as error:
        raise UserError(
            f"rollout.kv_pool.kind 'mooncake' needs the package mooncake ({error}): `pip install {PACKAGE}`, "
            "and libibverbs1 of the system"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """An object of the store that one request is asked for, and that goes with it."""

    pool: "MooncakePool"
    name: str
    num_bytes: int
    tier: Tier = field(default="dram", init=False)

    def read(self) -> ByteArray:
        """See `Found.read`."""
        raw = self.pool.get(self.name)
        self.close()
        return np.frombuffer(raw, np.uint8)

    def close(self) -> None:
        """See `Found.close`."""
        self.pool.remove(self.name)


class MooncakePool:
    """Implements `Pool`; see there."""

    def __init__(
        self, config: MooncakeKvPoolConfig, name: str, *, master: str, host: str, longest_bytes: int = 0
    ) -> None:
        """Join the store of `master` (host:port; empty: there is none), to whose clients this node is `host`.

        `longest_bytes`: the largest entry; Mooncake takes none that is larger than its buffer.
        """
        buffer_bytes = max(BUFFER_BYTES, longest_bytes)
        self.moves_always = config.move == "always"
        self.upcoming: frozenset[str] = frozenset()
        self._prefix = f"sestina-{name}/"
        self._store: MooncakeDistributedStore | None = None
        if (why := unreachable(master)) is not None:
            _log.warning("KV pool: %s; requests that move are computed again", why)
            return
        store = _client()()
        code = store.setup(
            host, "P2PHANDSHAKE", config.segment_bytes, buffer_bytes, config.protocol, config.device, master
        )
        if code:
            _log.warning("KV pool: Mooncake cannot be joined (%d); requests that move are computed again", code)
            return
        self._store = store

    def prepare(self, _page_bytes: int) -> None:
        """See `Pool.prepare`; Mooncake's objects are as large as they are."""

    def store(self, key: EntryKey, tokens: TokenArray, pages: ByteArray) -> Stored:
        """See `Pool.store`."""
        if self._store is None:
            return Stored(target="failed")
        head = head_of(key, tokens, pages)
        code = self._store.upsert_parts(self._prefix + key.name, head, pages.reshape(-1))
        if code in _NO_ROOM:
            return Stored(target="full")
        if code:
            self._give_up(code)
            return Stored(target="failed")
        return Stored(target="dram", num_bytes=len(head) + pages.nbytes)

    def take(self, key: EntryKey) -> _Object | None:
        """See `Pool.take`."""
        name = self._prefix + key.name
        num_bytes = self._joined().get_size(name)
        if num_bytes < 0 and num_bytes != _ABSENT:
            self._give_up(num_bytes)
            raise OSError(f"Mooncake does not answer ({num_bytes})")
        return None if num_bytes < 0 else _Object(pool=self, name=name, num_bytes=num_bytes)

    def store_near(self, _key: EntryKey, _tokens: TokenArray, _cells: Cells, _pages: Sequence[int]) -> None:
        """See `Pool.store_near`; an answer may take its time."""

    def take_near(self, _key: EntryKey) -> None:
        """See `Pool.take_near`."""

    def get(self, name: str) -> bytes:
        """Return an object's bytes; raises OSError when it has gone meanwhile, or cannot be had."""
        raw = self._joined().get(name)
        if not raw:
            raise OSError(f"Mooncake has lost {name}")
        return raw

    def remove(self, name: str) -> None:
        """Remove an object; it does not matter whether it is there."""
        if self._store is not None:
            self._store.remove(name, True)

    def on_ssd(self, _names: Iterable[str]) -> list[tuple[str, int]]:
        """See `Pool.on_ssd`; Mooncake keeps that to itself."""
        return []

    def promote(self, _name: str) -> bool:
        """See `Pool.promote`."""
        return False

    def forget(self, version: Version) -> None:
        """See `Pool.forget`."""
        if self._store is not None:
            self._store.remove_by_regex(f"^{self._prefix}(?!{version}-).*", True)

    def close(self) -> None:
        """See `Pool.close`."""
        if self._store is not None:
            self._store.close()

    def _joined(self) -> "MooncakeDistributedStore":
        if self._store is None:
            raise OSError("Mooncake's store is given up")
        return self._store

    def _give_up(self, code: int) -> None:
        _log.warning("KV pool: Mooncake does not answer (%d); requests that move are computed again", code)
        if self._store is not None:
            # It tries to take leave of a master that is gone, for a quarter of a minute.
            Thread(target=self._store.close, daemon=True).start()
        self._store = None


def _client() -> "type[MooncakeDistributedStore]":
    os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
    from mooncake.store import MooncakeDistributedStore  # noqa: PLC0415 # pyright: ignore[reportMissingImports]

    return MooncakeDistributedStore


def unreachable(master: str) -> str | None:
    """Return why the master at host:port, or at "" for none, does not take a connection; None when it does."""
    host, _, port = master.rpartition(":")
    if not master:
        return "there is no mooncake_master"
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        return f"no mooncake_master answers at {master} ({error})"
    return None
