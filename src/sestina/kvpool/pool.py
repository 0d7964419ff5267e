"""What an engine needs of a pool, whatever keeps it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sestina.core.records import KvTarget
from sestina.core.units import TokenArray, Version
from sestina.kvpool.entry import ByteArray, Cells, EntryKey
from sestina.policies.kv_pool.room import Tier


@dataclass(slots=True, kw_only=True)
class Stored:
    """What became of an entry, and of others to make room for it."""

    target: KvTarget
    num_bytes: int = 0
    demoted: int = 0
    evicted: int = 0


class Found(Protocol):
    """An entry that was taken out; `read` or `close` ends it."""

    @property
    def tier(self) -> Tier:
        """Where it lay."""
        ...

    @property
    def num_bytes(self) -> int:
        """Of the whole entry."""
        ...

    def read(self) -> ByteArray:
        """Return its bytes; raises OSError."""
        ...

    def close(self) -> None:
        """Leave it unread."""
        ...


class Near(Found, Protocol):
    """An entry that was taken out of this machine's memory; `put` ends it too."""

    def put(
        self, known: TokenArray, cells: Cells, pages: Sequence[int], *, skip: int, page_tokens: int
    ) -> tuple[int, bool]:
        """Copy its pages from number `skip` on to those of the same number, of a request whose tokens are `known`.

        Returns how many tokens have their KV in pages then, and False when that is less than the entry should have: a
        page was damaged or missing. Raises DataError when nothing of it can be used.
        """
        ...


class Pool(Protocol):
    """One process's hold on a pool; as many processes as there are.

    One thread at a time, but that what is `near` may be asked for while another thread does the rest.
    """

    moves_always: bool
    upcoming: frozenset[str]
    """Names of entries that are next in the queue: they stay where they are, if the pool has a say in that."""

    def prepare(self, page_bytes: int, /) -> None:
        """Pages will have so many bytes."""
        ...

    def store(self, key: EntryKey, tokens: TokenArray, pages: ByteArray) -> Stored:
        """Keep the KV of `tokens`, which lies in pages [pages, page bytes]; mutates the pool alone."""
        ...

    def take(self, key: EntryKey) -> Found | None:
        """Take an entry out; None when it is not there. Raises OSError when that cannot be found out."""
        ...

    def store_near(self, key: EntryKey, tokens: TokenArray, cells: Cells, pages: Sequence[int], /) -> Stored | None:
        """Do as `store` with these pages of some memory; None when that is not done in a moment, and nothing is."""
        ...

    def take_near(self, key: EntryKey, /) -> Near | None:
        """Do as `take`; None when that is not done in a moment, or it is not there, and nothing is."""
        ...

    def on_ssd(self, names: Iterable[str], /) -> list[tuple[str, int]]:
        """Return those of some entries that lie on an SSD, with their bytes."""
        ...

    def promote(self, name: str, /) -> bool:
        """Bring an entry that lies on an SSD to memory; False when there is no room, or it is gone."""
        ...

    def forget(self, version: Version) -> None:
        """Drop what was computed with weights of another version."""
        ...

    def close(self) -> None:
        """Let go; with the last process the pool is gone."""
        ...
