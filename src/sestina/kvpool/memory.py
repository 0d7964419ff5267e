"""The pool's shared memory: the arena of the tally's generation, and what a process has taken out of it."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sestina.core.units import Seconds, TokenArray
from sestina.kvpool.arena import Arena
from sestina.kvpool.blocks import Blocks, Moving
from sestina.kvpool.entry import Cells, EntryKey, entry_bytes
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Held


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
        return self._blocks(arena, key, entry, num_bytes, counted=True)

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
        return self._blocks(arena, key, entry, num_bytes, counted=counted)

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
        return self._blocks(arena, key, entry, num_bytes, counted=counted)

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

    def lift(self, key: EntryKey, used_s: Seconds) -> Moving:
        """Mark an entry, which is there, as on its way to the SSD; the tally has it no more."""
        arena = self.arena()
        assert arena is not None, f"{key.name} moves, and there is no memory"
        entry = arena.find(key)
        num_bytes = arena.num_bytes(entry)
        self.tally.add("dram", -num_bytes)
        serial = arena.lift(entry)
        return Moving(arena=arena, key=key, entry=entry, serial=serial, num_bytes=num_bytes, used_s=used_s)

    def _blocks(self, arena: Arena, key: EntryKey, entry: int, num_bytes: int, *, counted: bool) -> Blocks:
        return Blocks(
            tally=self.tally,
            arena=arena,
            key=key,
            entry=entry,
            num_bytes=num_bytes,
            counted=counted,
        )

    def _remove_older(self, generation: int) -> None:
        for kind in ("index", "pages"):
            for path in self._folder.glob(f"{kind}-*"):
                if path.name != f"{kind}-{generation}":
                    path.unlink(missing_ok=True)
