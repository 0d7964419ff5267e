"""The pool of one node: entries in shared memory first, then on its SSD, each tier within its limit.

An entry is there from the end of a chunk to the start of the request's next one, whose instance takes it out. Bytes are
claimed in the tally before they are written. What is on its way between the tiers can be taken as well; its mover then
undoes what it has begun.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sestina.core.errors import DataError
from sestina.core.units import TokenArray, Version
from sestina.kvpool.blocks import Blocks, Moving
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, cells_of, entry_bytes, head_of
from sestina.kvpool.folder import Folder
from sestina.kvpool.memory import Memory
from sestina.kvpool.pool import Found, Near, Stored
from sestina.kvpool.promotion import raise_entry
from sestina.kvpool.shelf import Shelf
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Demote, Drop, Held, Limits, Room, Tier, make_room

SHARED_MEMORY = Path("/dev/shm")

NEAR_BYTES = 1 << 20
"""Entries up to this size are moved at once: a thread that is handed one, and hands it back, takes about as long."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How an entry gets its room."""

    room: Room
    blocks: Blocks | None
    """None on the SSD, or where what others are moving has not left yet."""
    moving: list[Moving]


class LocalPool:
    """Implements `Pool` on one node; see there. Several threads may use it."""

    def __init__(self, config: LocalKvPoolConfig, name: str, *, shared: Path = SHARED_MEMORY) -> None:
        """Join the pool of this name, or begin it; raises OSError when shared memory cannot be written."""
        self._limits = Limits(dram_bytes=config.dram_bytes, ssd_bytes=config.ssd_bytes)
        self._folder = Folder(shared, name)
        self._ssd: Shelf | None = None
        self._tally = Tally(self._folder.path / "tally", count_ssd=lambda: self._ssd.total_bytes() if self._ssd else 0)
        self._memory = Memory(self._folder.path, self._tally, config.dram_bytes)
        self.moves_always = config.move == "always"
        self.upcoming: frozenset[str] = frozenset()
        """Names of entries that are next in the queue: they stay where they are."""
        if config.ssd_bytes and config.ssd_dir is not None:
            self._open_ssd(config.ssd_dir, name)

    def prepare(self, page_bytes: int) -> None:
        """See `Pool.prepare`; opens what entries are kept in."""
        try:
            with self._tally:
                self._memory.arena(page_bytes)
        except OSError as error:
            _log.warning("KV pool: shared memory cannot be opened (%s)", error)

    def store(self, key: EntryKey, tokens: TokenArray, pages: ByteArray) -> Stored:
        """Keep the KV of `tokens`, which lies in pages [pages, page bytes]; mutates the pool alone."""
        num_bytes = entry_bytes(*pages.shape)
        try:
            with self._tally:
                self._drop_former(key)
                plan = self._plan(key, pages, num_bytes)
        except OSError as error:
            return self._failed("dram", error)
        if plan is None:
            return Stored(target="full")
        demoted = sum(map(self._demote, plan.moving))
        evicted = len(plan.room.steps) - demoted
        try:
            if plan.blocks is not None:
                plan.blocks.fill(tokens, cells_of(pages), range(len(pages)))
            elif plan.room.tier == "dram" or self._ssd is None:
                return Stored(target="full", demoted=demoted, evicted=evicted)
            else:
                self._ssd.write(key.name, head_of(key, tokens, pages), pages.data)
        except OSError as error:
            if plan.room.tier == "ssd":
                self._uncount_ssd(num_bytes)
            return replace(self._failed(plan.room.tier, error), demoted=demoted, evicted=evicted)
        return Stored(target=plan.room.tier, num_bytes=num_bytes, demoted=demoted, evicted=evicted)

    def store_near(
        self, key: EntryKey, tokens: TokenArray, cells: Cells, pages: Sequence[int], stem: Near | None = None
    ) -> Stored | None:
        """See `Pool.store_near`."""
        if isinstance(stem, Blocks) and stem.retained:
            try:
                if num_bytes := stem.extend(tokens, cells, pages):
                    return Stored(target="dram", num_bytes=num_bytes)
            except OSError as error:
                return self._failed("dram", error)
            stem.close()
        num_bytes = entry_bytes(len(pages), cells.page_bytes)
        if num_bytes > NEAR_BYTES or (self._ssd is not None and self._ssd.num_bytes(key.name)):
            return None
        try:
            kept = self._memory.keep_near(key, tokens, cells, pages, num_bytes)
        except OSError as error:
            return self._failed("dram", error)
        return Stored(target="dram", num_bytes=num_bytes) if kept else None

    def take(self, key: EntryKey) -> Found | None:
        """Take an entry out; None when it is not there. Raises OSError when it is and cannot be opened."""
        with self._tally:
            blocks = self._memory.take(key)
            if blocks is not None or self._ssd is None:
                return blocks
            found = self._ssd.take(key.name)
            if found is not None and not found.moving:  # its mover keeps account
                self._tally.add("ssd", -found.num_bytes)
            return found

    def take_near(self, key: EntryKey) -> Blocks | None:
        """See `Pool.take_near`."""
        return self._memory.take_near(key, NEAR_BYTES)

    def on_ssd(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Return those of some entries that lie on the SSD, with their bytes."""
        sizes = [] if self._ssd is None else [(name, self._ssd.num_bytes(name)) for name in names]
        return [(name, num_bytes) for name, num_bytes in sizes if num_bytes]

    def promote(self, name: str) -> bool:
        """Bring an entry that lies on the SSD to DRAM; False when there is no room, or it is gone."""
        ssd = self._ssd
        if ssd is None:
            return False
        with self._tally:
            num_bytes = ssd.num_bytes(name)
            if not num_bytes or not self._memory.has(num_bytes):
                return False
            try:
                ssd.lift(name)
            except OSError as error:
                self._give_up_ssd(error)
                return False
        moved = raise_entry(self._memory, ssd, EntryKey.named(name))
        with self._tally as tally:
            stays = ssd.moving(name).exists()
            if stays:
                ssd.lower(name)
            tally.add("ssd", 0 if stays else -num_bytes)
        return moved

    def forget(self, version: Version) -> None:
        """Drop what was computed with weights of another version."""
        with self._tally:
            for entry in self._held():
                if not entry.name.startswith(f"{version}-"):
                    self._drop(entry)

    def close(self) -> None:
        """Let go; with the last process the pool is gone."""
        self._memory.close()
        for folder in (self._folder, self._ssd and self._ssd.folder):
            if folder is not None:
                folder.close()

    def _open_ssd(self, parent: Path, name: str) -> None:
        try:
            self._ssd = Shelf(Folder(parent, name))
        except OSError as error:
            self._give_up_ssd(error)

    def _plan(self, key: EntryKey, pages: ByteArray, num_bytes: int) -> _Plan | None:
        """Make room by taking all steps but the copies to the SSD; None when there is none."""
        room = self._room(num_bytes)
        if room is None:
            return None
        moving = self._clear(room.steps)
        blocks = self._memory.claim(key, len(pages), pages.shape[1], num_bytes) if room.tier == "dram" else None
        if room.tier == "ssd":
            self._tally.add("ssd", num_bytes)
        return _Plan(room=room, blocks=blocks, moving=moving)

    def _room(self, num_bytes: int) -> Room | None:
        """Look at the entries only when the tally says that there is too little room."""
        if self._memory.has(num_bytes):
            return Room(tier="dram", steps=())
        held = self._held()

        def left(tier: Tier) -> int:
            """What others are writing, or have taken and not read, is claimed, and not to be seen."""
            unseen = self._tally[tier] - sum(entry.num_bytes for entry in held if entry.tier == tier)
            return self._limits.of(tier) - unseen

        return make_room(held, num_bytes, Limits(dram_bytes=left("dram"), ssd_bytes=left("ssd")), self.upcoming)

    def _held(self) -> list[Held]:
        held = list(self._memory.held())
        if self._limits.ssd_bytes and self._ssd is not None:
            try:
                held += self._ssd.held()
            except OSError as error:
                self._give_up_ssd(error)
        return held

    def _clear(self, steps: Sequence[Demote | Drop]) -> list[Moving]:
        """Take the drops, and account for the others; returns what is to move, which nobody else moves or drops."""
        moving: list[Moving] = []
        for step in steps:
            match step:
                case Drop():
                    self._drop(step.entry)
                case Demote():
                    moving.append(self._memory.lift(EntryKey.named(step.entry.name), step.entry.used_s))
                    self._tally.add("ssd", step.entry.num_bytes)
        return moving

    def _drop(self, entry: Held) -> None:
        if entry.tier == "dram":
            self._memory.drop(EntryKey.named(entry.name))
        elif self._ssd is not None:
            try:
                self._ssd.drop(entry.name)
            except OSError as error:
                self._give_up_ssd(error)
            else:
                self._tally.add("ssd", -entry.num_bytes)

    def _drop_former(self, key: EntryKey) -> None:
        """What a request has left behind that was never resumed."""
        self._memory.drop(key)
        if self._ssd is not None and (num_bytes := self._ssd.num_bytes(key.name)):
            self._drop(Held(name=key.name, tier="ssd", num_bytes=num_bytes, used_s=0.0))

    def _demote(self, entry: Moving) -> bool:
        """Copy what is marked as moving; False when it was taken meanwhile, or cannot be copied."""
        moved = self._lower(entry)
        with self._tally:
            if entry.there:
                entry.drop()
        if not moved:
            self._uncount_ssd(entry.num_bytes)
        return moved

    def _lower(self, entry: Moving) -> bool:
        if self._ssd is None:
            return False
        name = entry.key.name
        try:
            self._ssd.write_aside(name, entry.raw().data)
            self._ssd.date(name, entry.used_s)
            with self._tally:
                if entry.there:
                    self._ssd.place(name)
                    entry.drop()
                    return True
        except DataError as error:
            _log.warning("KV pool: %s; it is not brought to the SSD", error)
        except OSError as error:
            self._give_up_ssd(error)
        self._ssd.discard(name)
        return False

    def _uncount_ssd(self, num_bytes: int) -> None:
        with self._tally as tally:
            tally.add("ssd", -num_bytes)

    def _failed(self, tier: Tier, error: OSError) -> Stored:
        if tier == "ssd":
            self._give_up_ssd(error)
        else:
            _log.warning("KV pool: shared memory cannot be written (%s); a request will be computed again", error)
        return Stored(target="failed")

    def _give_up_ssd(self, error: OSError) -> None:
        """Nothing more is written there; what it holds can still be taken."""
        if self._limits.ssd_bytes:
            _log.warning("KV pool: the SSD is given up (%s); what has no room in memory is computed again", error)
        self._limits = replace(self._limits, ssd_bytes=0)
