"""Blocks of a node's shared memory that are this process's own, and entries that it carries to the SSD."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sestina.core.errors import DataError
from sestina.core.units import Seconds, TokenArray
from sestina.kvpool.arena import Arena
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, digest_of, entry_bytes, wrong_pages
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Tier

_PLENTY = 2
"""A pool has plenty of room while it is filled to one part in so many."""


@dataclass(slots=True, kw_only=True)  # not frozen, which takes a microsecond for each field
class Blocks:
    """Room of this process's own in an arena: for what it writes, or of what it has taken."""

    tally: Tally
    arena: Arena
    limit_bytes: int
    """Of all that lies in memory."""
    key: EntryKey
    entry: int
    num_bytes: int
    counted: bool
    """Whether the tally has them."""
    tier: Tier = field(default="dram", init=False)
    retained: bool = field(default=False, init=False)
    """See `Near.retained`."""
    _whole_pages: int = field(default=0, init=False)
    """Of a text that was put into pages: those that stay as they are when it goes on."""

    def fill(self, tokens: TokenArray, cells: Cells, pages: Sequence[int]) -> None:
        """Make an entry of them, found from then on; raises OSError, and then gives them back."""
        self.write(cells, pages)
        digest = digest_of(tokens)
        with self.tally:
            self.arena.publish(self.entry, len(tokens), digest, time.time())

    def write(self, cells: Cells, pages: Sequence[int]) -> None:
        """Copy pages there; raises OSError, and then gives them back."""
        try:
            self.arena.write(self.entry, cells, pages)
        except OSError:
            self.close()
            raise

    def put(
        self, known: TokenArray, cells: Cells, pages: Sequence[int], *, skip: int, page_tokens: int
    ) -> tuple[int, bool]:
        """See `Near.put`; they are retained where memory is filled to less than a half."""
        if cells.page_bytes != self.arena.page_bytes:
            self.close()
            raise wrong_pages(self.key, self.arena.page_bytes, cells.page_bytes)
        usable, num_tokens, good, num_pages, self.retained = self.arena.native.put_near(
            self.tally.native,
            self.arena.generation,
            self.num_bytes if self.counted else 0,
            self.entry,
            known,
            page_tokens,
            cells.layout,
            pages,
            skip,
            self.limit_bytes // _PLENTY if self.counted else -1,
        )
        if not usable:
            raise DataError(f"{self.key.name} is damaged, or holds another text")
        self._whole_pages = num_tokens // page_tokens
        return (num_tokens, True) if good == num_pages else (good * page_tokens, False)

    def extend(self, tokens: TokenArray, cells: Cells, pages: Sequence[int]) -> int:
        """Keep what was retained again, with what its text has grown by; returns the bytes that took.

        0: there is more to do, and nothing is done. Raises OSError, and then has given them back.
        """
        num_bytes = entry_bytes(len(pages), cells.page_bytes)
        code = self.arena.native.extend_near(
            self.tally.native,
            self.arena.generation,
            self.limit_bytes,
            self.entry,
            self.num_bytes,
            num_bytes,
            self.key.numbers,
            tokens,
            cells.layout,
            pages,
            self._whole_pages,
            time.time(),
        )
        if code > 0:
            raise OSError(code, os.strerror(code))
        return 0 if code else num_bytes - self._whole_pages * cells.page_bytes

    def read(self) -> ByteArray:
        """See `Found.read`; raises DataError too."""
        try:
            return self.arena.raw(self.entry, self.key)
        finally:
            self.close()

    def close(self) -> None:
        """Give them back."""
        self.retained = False
        with self.tally as tally:
            self.arena.free(self.entry)
            if self.counted and self.arena.generation == tally.generation:
                tally.add("dram", -self.num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """An entry that this process carries to the SSD, and that others may take meanwhile."""

    arena: Arena
    key: EntryKey
    entry: int
    serial: int
    num_bytes: int
    used_s: Seconds

    def raw(self) -> ByteArray:
        """Return it as a file; what others write there meanwhile the checksums find. Raises DataError."""
        return self.arena.raw(self.entry, self.key)

    @property
    def there(self) -> bool:
        """Whether nobody has taken it."""
        return self.arena.moves(self.entry, self.serial)

    def drop(self) -> None:
        """Remove it."""
        self.arena.remove(self.entry)
        self.arena.free(self.entry)
