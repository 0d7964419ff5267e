"""Blocks of a node's shared memory that are this process's own, and entries that it carries to the SSD."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sestina.core.errors import DataError
from sestina.core.units import Seconds, TokenArray
from sestina.kvpool.arena import Arena
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, digest_of, wrong_pages
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Tier


@dataclass(slots=True, kw_only=True)  # not frozen, which takes a microsecond for each field
class Blocks:
    """Room of this process's own in an arena: for what it writes, or of what it has taken."""

    tally: Tally
    arena: Arena
    key: EntryKey
    entry: int
    num_bytes: int
    counted: bool
    """Whether the tally has them."""
    tier: Tier = field(default="dram", init=False)

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
        """See `Near.put`."""
        if cells.page_bytes != self.arena.page_bytes:
            self.close()
            raise wrong_pages(self.key, self.arena.page_bytes, cells.page_bytes)
        usable, num_tokens, good, num_pages = self.arena.native.put_near(
            self.tally.native,
            self.arena.generation,
            self.num_bytes if self.counted else 0,
            self.entry,
            known,
            page_tokens,
            cells.layout,
            pages,
            skip,
        )
        if not usable:
            raise DataError(f"{self.key.name} is damaged, or holds another text")
        return (num_tokens, True) if good == num_pages else (good * page_tokens, False)

    def read(self) -> ByteArray:
        """See `Found.read`; raises DataError too."""
        try:
            return self.arena.raw(self.entry, self.key)
        finally:
            self.close()

    def close(self) -> None:
        """Give them back."""
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
