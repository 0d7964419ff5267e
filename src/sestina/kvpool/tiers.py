"""What a node's pool holds in memory and on the SSD, and how room is made there."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sestina.core.errors import DataError
from sestina.kvpool.blocks import Blocks, Moving
from sestina.kvpool.entry import EntryKey
from sestina.kvpool.folder import Folder
from sestina.kvpool.memory import Memory
from sestina.kvpool.promotion import raise_entry
from sestina.kvpool.shelf import Shelf
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Demote, Drop, Held, Limits, Room, Tier, make_room

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How an entry gets its room."""

    room: Room
    blocks: Blocks | None
    """None on the SSD, or where what others are moving has not left yet."""
    moving: list[Moving]


class Tiers:
    """One process's hold on both; raises OSError where shared memory cannot be written."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._limits = limits
        self.ssd: Shelf | None = None
        """None until it is opened, and where there is none."""
        self.tally = Tally(folder / "tally", count_ssd=lambda: self.ssd.total_bytes() if self.ssd else 0)
        self.memory = Memory(folder, self.tally, limits.dram_bytes)

    def open_ssd(self, parent: Path, name: str) -> None:
        """Begin to use a folder on it; one that cannot be made is given up."""
        try:
            self.ssd = Shelf(Folder(parent, name))
        except OSError as error:
            self.give_up_ssd(error)

    def plan(
        self, key: EntryKey, *, num_pages: int, page_bytes: int, num_bytes: int, upcoming: Collection[str]
    ) -> Plan | None:
        """Make room by taking all steps but the copies to the SSD; None when there is none. Raises OSError.

        The caller has the tally's lock; `upcoming` as in `make_room`.
        """
        room = self._room(num_bytes, upcoming)
        if room is None:
            return None
        moving = self._clear(room.steps)
        blocks = self.memory.claim(key, num_pages, page_bytes, num_bytes) if room.tier == "dram" else None
        if room.tier == "ssd":
            self.tally.add("ssd", num_bytes)
        return Plan(room=room, blocks=blocks, moving=moving)

    def held(self) -> list[Held]:
        """Return what can leave; the caller has the tally's lock."""
        held = list(self.memory.held())
        if self._limits.ssd_bytes and self.ssd is not None:
            try:
                held += self.ssd.held()
            except OSError as error:
                self.give_up_ssd(error)
        return held

    def drop(self, entry: Held) -> None:
        """Forget an entry; the caller has the tally's lock."""
        if entry.tier == "dram":
            self.memory.drop(EntryKey.named(entry.name))
        elif self.ssd is not None:
            try:
                self.ssd.drop(entry.name)
            except OSError as error:
                self.give_up_ssd(error)
            else:
                self.tally.add("ssd", -entry.num_bytes)

    def drop_former(self, key: EntryKey) -> None:
        """What a request has left behind that was never resumed."""
        self.memory.drop(key)
        if self.ssd is not None and (num_bytes := self.ssd.num_bytes(key.name)):
            self.drop(Held(name=key.name, tier="ssd", num_bytes=num_bytes, used_s=0.0))

    def demote(self, entry: Moving) -> bool:
        """Copy what is marked as moving; False when it was taken meanwhile, or cannot be copied."""
        moved = self._lower(entry)
        with self.tally:
            if entry.there:
                entry.drop()
        if not moved:
            self.uncount_ssd(entry.num_bytes)
        return moved

    def promote(self, name: str) -> bool:
        """Bring an entry that lies on the SSD to DRAM; False when there is no room, or it is gone."""
        ssd = self.ssd
        if ssd is None:
            return False
        with self.tally:
            num_bytes = ssd.num_bytes(name)
            if not num_bytes or not self.memory.has(num_bytes):
                return False
            try:
                ssd.lift(name)
            except OSError as error:
                self.give_up_ssd(error)
                return False
        moved = raise_entry(self.memory, ssd, EntryKey.named(name))
        with self.tally as tally:
            stays = ssd.moving(name).exists()
            if stays:
                ssd.lower(name)
            tally.add("ssd", 0 if stays else -num_bytes)
        return moved

    def uncount_ssd(self, num_bytes: int) -> None:
        """Give back what was claimed there."""
        with self.tally as tally:
            tally.add("ssd", -num_bytes)

    def give_up_ssd(self, error: OSError) -> None:
        """Nothing more is written there; what it holds can still be taken."""
        if self._limits.ssd_bytes:
            _log.warning("KV pool: the SSD is given up (%s); what has no room in memory is computed again", error)
        self._limits = replace(self._limits, ssd_bytes=0)

    def _room(self, num_bytes: int, upcoming: Collection[str]) -> Room | None:
        """Look at the entries only when the tally says that there is too little room."""
        if self.memory.has(num_bytes):
            return Room(tier="dram", steps=())
        held = self.held()

        def left(tier: Tier) -> int:
            """What others are writing, or have taken and not read, is claimed, and not to be seen."""
            unseen = self.tally[tier] - sum(entry.num_bytes for entry in held if entry.tier == tier)
            return self._limits.of(tier) - unseen

        return make_room(held, num_bytes, Limits(dram_bytes=left("dram"), ssd_bytes=left("ssd")), upcoming)

    def _clear(self, steps: Sequence[Demote | Drop]) -> list[Moving]:
        """Take the drops, and account for the others; returns what is to move, which nobody else moves or drops."""
        moving: list[Moving] = []
        for step in steps:
            match step:
                case Drop():
                    self.drop(step.entry)
                case Demote():
                    moving.append(self.memory.lift(EntryKey.named(step.entry.name), step.entry.used_s))
                    self.tally.add("ssd", step.entry.num_bytes)
        return moving

    def _lower(self, entry: Moving) -> bool:
        if self.ssd is None:
            return False
        name = entry.key.name
        try:
            self.ssd.write_aside(name, entry.raw().data)
            self.ssd.date(name, entry.used_s)
            with self.tally:
                if entry.there:
                    self.ssd.place(name)
                    entry.drop()
                    return True
        except DataError as error:
            _log.warning("KV pool: %s; it is not brought to the SSD", error)
        except OSError as error:
            self.give_up_ssd(error)
        self.ssd.discard(name)
        return False
