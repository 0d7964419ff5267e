"""The pool's shared memory: the arena of the tally's generation, and what a process has taken out of it."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sestina.core.errors import DataError
from sestina.core.units import Seconds, TokenArray
from sestina.kvpool.arena import Arena
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, digest_of, entry_bytes, wrong_pages
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Held, Tier


@dataclass(slots=True, kw_only=True)  # not frozen, which takes a microsecond for each field
class Blocks:
    """Room of this process's own in an arena: for what it writes, or of what it has taken."""

    memory: "Memory"
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
        with self.memory.tally:
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
            self.memory.tally.native,
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
        with self.memory.tally as tally:
            self.arena.free(self.entry)
            if self.counted and self.arena.generation == tally.generation:
                tally.add("dram", -self.num_bytes)


class Memory:
    """One process's hold on it; whoever calls has the tally's lock, but for what is `near`."""

    def __init__(self, folder: Path, tally: Tally, limit_bytes: int) -> None:
        self.tally = tally
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._arena: Arena | None = None

    def arena(self, page_bytes: int = 0) -> Arena | None:
        """Return the arena of this generation; None when there is none and `page_bytes` is 0. Raises OSError."""
        generation = self.tally.generation
        if self._arena is None or self._arena.generation != generation:
            self._arena = None
            self._remove_older(generation)
            try:
                self._arena = Arena(self._folder, generation, page_bytes=page_bytes, limit_bytes=self._limit_bytes)
            except FileNotFoundError:
                return None
        return self._arena

    def close(self) -> None:
        """Hold it no longer, but for what has been taken out of it."""
        self._arena = None

    def has(self, num_bytes: int) -> bool:
        """Whether the limit leaves so much room."""
        return self.tally["dram"] <= self._limit_bytes - num_bytes

    def claim(self, key: EntryKey, num_pages: int, page_bytes: int, num_bytes: int) -> Blocks | None:
        """Take room and count it; None when blocks are short. Raises OSError."""
        arena = self.arena(page_bytes)
        entry = arena.reserve(key, num_pages) if arena else 0
        if arena is None or not entry:
            return None
        self.tally.add("dram", num_bytes)
        return Blocks(memory=self, arena=arena, key=key, entry=entry, num_bytes=num_bytes, counted=True)

    def take_near(self, key: EntryKey, most_bytes: int) -> Blocks | None:
        """Take an entry out, without the lock; None when it is not there, or larger, or there is more to do."""
        arena = self._arena
        if arena is None:
            return None
        most_pages = most_bytes // arena.page_bytes
        entry, num_pages, counted = arena.native.take_near(self.tally.native, arena.generation, key.numbers, most_pages)
        if not entry:
            return None
        num_bytes = entry_bytes(num_pages, arena.page_bytes)
        return Blocks(memory=self, arena=arena, key=key, entry=entry, num_bytes=num_bytes, counted=counted)

    def keep_near(self, key: EntryKey, tokens: TokenArray, cells: Cells, pages: Sequence[int], num_bytes: int) -> bool:
        """Keep an entry, without the lock; False when there is more to do. Raises OSError."""
        arena = self._arena
        if arena is None:
            return False
        if cells.page_bytes != arena.page_bytes:
            raise arena.wrong_pages(cells)
        code = arena.native.keep_near(
            self.tally.native,
            arena.generation,
            self._limit_bytes,
            num_bytes,
            key.numbers,
            tokens,
            cells.layout,
            pages,
            time.time(),
        )
        if code > 0:
            raise OSError(code, os.strerror(code))
        return code == 0

    def take(self, key: EntryKey) -> Blocks | None:
        """Take an entry out; None when it is not there."""
        arena = self.arena()
        entry = arena.find(key) if arena else 0
        if arena is None or not entry:
            return None
        num_bytes = arena.num_bytes(entry)
        counted = not arena.is_moving(entry)  # of what is moving its mover has kept account
        arena.remove(entry)
        return Blocks(memory=self, arena=arena, key=key, entry=entry, num_bytes=num_bytes, counted=counted)

    def held(self) -> Iterator[Held]:
        """Yield what is complete and stays where it is."""
        arena = self.arena()
        yield from arena.held() if arena else ()

    def drop(self, key: EntryKey) -> int:
        """Remove an entry, unless it is moving; returns its bytes, which the tally has no more."""
        arena = self.arena()
        entry = arena.find(key) if arena else 0
        if arena is None or not entry or arena.is_moving(entry):
            return 0
        num_bytes = arena.num_bytes(entry)
        arena.remove(entry)
        arena.free(entry)
        self.tally.add("dram", -num_bytes)
        return num_bytes

    def lift(self, key: EntryKey, used_s: Seconds) -> "Moving":
        """Mark an entry, which is there, as on its way to the SSD; the tally has it no more."""
        arena = self.arena()
        assert arena is not None, f"{key.name} moves, and there is no memory"
        entry = arena.find(key)
        num_bytes = arena.num_bytes(entry)
        self.tally.add("dram", -num_bytes)
        serial = arena.lift(entry)
        return Moving(arena=arena, key=key, entry=entry, serial=serial, num_bytes=num_bytes, used_s=used_s)

    def _remove_older(self, generation: int) -> None:
        for kind in ("index", "pages"):
            for path in self._folder.glob(f"{kind}-*"):
                if path.name != f"{kind}-{generation}":
                    path.unlink(missing_ok=True)


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
