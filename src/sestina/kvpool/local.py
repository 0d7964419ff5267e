"""The pool of one node: entries in shared memory first, then on its SSD, each tier within its limit.

An entry is there from the end of a chunk to the start of the request's next one, whose instance takes it out. Bytes are
claimed in the tally before they are written. What is on its way between the tiers can be taken as well; its mover then
undoes what it has begun.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sestina.core.units import TokenArray, Version
from sestina.kvpool.blocks import Blocks
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, cells_of, entry_bytes, head_of
from sestina.kvpool.folder import Folder
from sestina.kvpool.pool import Found, Stored
from sestina.kvpool.tiers import Tiers
from sestina.policies.kv_pool.room import Limits, Tier

SHARED_MEMORY = Path("/dev/shm")

NEAR_BYTES = 1 << 20
"""Entries up to this size are moved at once: a thread that is handed one, and hands it back, takes about as long."""

READY_BYTES = 32 << 20
"""Memory that is there, and mapped, before the first entry: getting it took a third of the time that moving takes."""

_log = logging.getLogger(__name__)


class LocalPool:
    """Implements `Pool` on one node; see there. Several threads may use it."""

    def __init__(self, config: LocalKvPoolConfig, name: str, *, shared: Path = SHARED_MEMORY) -> None:
        """Join the pool of this name, or begin it; raises OSError when shared memory cannot be written."""
        self._folder = Folder(shared, name)
        limits = Limits(dram_bytes=config.dram_bytes, ssd_bytes=config.ssd_bytes)
        self._tiers = Tiers(self._folder.path, limits)
        self.moves_always = config.move == "always"
        self.upcoming: frozenset[str] = frozenset()
        """Names of entries that are next in the queue: they stay where they are."""
        if config.ssd_bytes and config.ssd_dir is not None:
            self._tiers.open_ssd(config.ssd_dir, name)

    def prepare(self, page_bytes: int) -> None:
        """See `Pool.prepare`; opens what entries are kept in, and has memory for the first of them."""
        try:
            with self._tiers.tally:
                arena = self._tiers.memory.arena(page_bytes)
            if arena is not None:
                arena.make_ready(READY_BYTES)
        except OSError as error:
            _log.warning("KV pool: shared memory cannot be opened, or is short (%s)", error)

    def store(self, key: EntryKey, tokens: TokenArray, pages: ByteArray) -> Stored:
        """Keep the KV of `tokens`, which lies in pages [pages, page bytes]; mutates the pool alone."""
        num_bytes = entry_bytes(*pages.shape)
        try:
            with self._tiers.tally:
                self._tiers.drop_former(key)
                plan = self._tiers.plan(
                    key,
                    num_pages=len(pages),
                    page_bytes=pages.shape[1],
                    num_bytes=num_bytes,
                    upcoming=self.upcoming,
                )
        except OSError as error:
            return self._failed("dram", error)
        if plan is None:
            return Stored(target="full")
        demoted = sum(map(self._tiers.demote, plan.moving))
        evicted = len(plan.room.steps) - demoted
        try:
            if plan.blocks is not None:
                plan.blocks.fill(tokens, cells_of(pages), range(len(pages)))
            elif plan.room.tier == "dram" or self._tiers.ssd is None:
                return Stored(target="full", demoted=demoted, evicted=evicted)
            else:
                self._tiers.ssd.write(key.name, head_of(key, tokens, pages), pages.data)
        except OSError as error:
            if plan.room.tier == "ssd":
                self._tiers.uncount_ssd(num_bytes)
            return replace(self._failed(plan.room.tier, error), demoted=demoted, evicted=evicted)
        return Stored(target=plan.room.tier, num_bytes=num_bytes, demoted=demoted, evicted=evicted)

    def store_near(self, key: EntryKey, tokens: TokenArray, cells: Cells, pages: Sequence[int]) -> Stored | None:
        """See `Pool.store_near`."""
        num_bytes = entry_bytes(len(pages), cells.page_bytes)
        if num_bytes > NEAR_BYTES or (self._tiers.ssd is not None and self._tiers.ssd.num_bytes(key.name)):
            return None
        try:
            kept = self._tiers.memory.keep_near(key, tokens, cells, pages, num_bytes)
        except OSError as error:
            return self._failed("dram", error)
        return Stored(target="dram", num_bytes=num_bytes) if kept else None

    def take(self, key: EntryKey) -> Found | None:
        """Take an entry out; None when it is not there. Raises OSError when it is and cannot be opened."""
        with self._tiers.tally:
            blocks = self._tiers.memory.take(key)
            if blocks is not None or self._tiers.ssd is None:
                return blocks
            found = self._tiers.ssd.take(key.name)
            if found is not None and not found.moving:  # its mover keeps account
                self._tiers.tally.add("ssd", -found.num_bytes)
            return found

    def take_near(self, key: EntryKey) -> Blocks | None:
        """See `Pool.take_near`."""
        return self._tiers.memory.take_near(key, NEAR_BYTES)

    def on_ssd(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Return those of some entries that lie on the SSD, with their bytes."""
        sizes = [] if self._tiers.ssd is None else [(name, self._tiers.ssd.num_bytes(name)) for name in names]
        return [(name, num_bytes) for name, num_bytes in sizes if num_bytes]

    def promote(self, name: str) -> bool:
        """See `Pool.promote`."""
        return self._tiers.promote(name)

    def forget(self, version: Version) -> None:
        """Drop what was computed with weights of another version."""
        with self._tiers.tally:
            for entry in self._tiers.held():
                if not entry.name.startswith(f"{version}-"):
                    self._tiers.drop(entry)

    def close(self) -> None:
        """Let go; with the last process the pool is gone."""
        self._tiers.memory.close()
        for folder in (self._folder, self._tiers.ssd and self._tiers.ssd.folder):
            if folder is not None:
                folder.close()

    def _failed(self, tier: Tier, error: OSError) -> Stored:
        if tier == "ssd":
            self._tiers.give_up_ssd(error)
        else:
            _log.warning("KV pool: shared memory cannot be written (%s); a request will be computed again", error)
        return Stored(target="failed")
