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
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.entry import ByteArray, EntryKey, head_of
from sestina.kvpool.folder import Folder
from sestina.kvpool.pool import Stored
from sestina.kvpool.shelf import Found, Shelf
from sestina.kvpool.tally import Tally
from sestina.policies.kv_pool.room import Demote, Drop, Held, Limits, Room, Tier, make_room

SHARED_MEMORY = Path("/dev/shm")

_log = logging.getLogger(__name__)


class LocalPool:
    """Implements `Pool` on one node; see there."""

    def __init__(self, config: LocalKvPoolConfig, name: str, *, shared: Path = SHARED_MEMORY) -> None:
        """Join the pool of this name, or begin it; raises OSError when shared memory cannot be written."""
        self._limits = Limits(dram_bytes=config.dram_bytes, ssd_bytes=config.ssd_bytes)
        self._shelves: dict[Tier, Shelf] = {"dram": Shelf("dram", Folder(shared, name))}
        self._tally = Tally(self._shelves["dram"].folder.path / "tally")
        self.moves_always = config.move == "always"
        self.upcoming: frozenset[str] = frozenset()
        """Names of entries that are next in the queue: they stay where they are."""
        if config.ssd_bytes and config.ssd_dir is not None:
            self._open_ssd(config.ssd_dir, name)

    def store(self, key: EntryKey, tokens: TokenArray, pages: ByteArray) -> Stored:
        """Keep the KV of `tokens`, which lies in pages [pages, page bytes]; mutates the pool alone."""
        name, head = key.name, head_of(key, tokens, pages)
        num_bytes = len(head) + pages.nbytes
        with self._tally.locked():
            self._drop_former(name)
            room = self._room(num_bytes)
            if room is None:
                return Stored(target="full")
            moving = self._clear(room.steps)
            self._tally.add(room.tier, num_bytes - self._shelves[room.tier].reuse(name))
        demoted = sum(self._demote(entry) for entry in moving)
        evicted = len(room.steps) - demoted
        try:
            self._shelves[room.tier].write(name, head, pages.data)
        except OSError as error:
            self._not_written(room.tier, num_bytes, error)
            return Stored(target="failed", demoted=demoted, evicted=evicted)
        return Stored(target=room.tier, num_bytes=num_bytes, demoted=demoted, evicted=evicted)

    def take(self, key: EntryKey) -> Found | None:
        """Take an entry out; None when it is not there. Raises OSError when it is and cannot be opened."""
        name = key.name
        with self._tally.locked():
            for tier, shelf in self._shelves.items():
                found = shelf.take(name)
                if found is None:
                    continue
                if tier == "ssd" and not found.moving:  # its mover keeps account; what was in memory is a blank
                    self._tally.add(tier, -found.num_bytes)
                return found
        return None

    def on_ssd(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Return those of some entries that lie on the SSD, with their bytes."""
        shelf = self._shelves.get("ssd")
        sizes = [] if shelf is None else [(name, shelf.num_bytes(name)) for name in names]
        return [(name, num_bytes) for name, num_bytes in sizes if num_bytes]

    def promote(self, name: str) -> bool:
        """Bring an entry that lies on the SSD to DRAM; False when there is no room, or it is gone."""
        ssd = self._shelves["ssd"]
        with self._tally.locked():
            num_bytes = ssd.num_bytes(name)
            if not num_bytes or not self._memory_has(num_bytes):
                return False
            try:
                ssd.lift(name)
            except OSError as error:
                self._give_up_ssd(error)
                return False
            self._tally.add("dram", num_bytes)
        moved = self._carry(name, "ssd", "dram")
        with self._tally.locked():
            stays = ssd.moving(name).exists()
            if stays:
                ssd.lower(name)
            self._tally.add("ssd", 0 if stays else -num_bytes)
            self._tally.add("dram", 0 if moved else -num_bytes)
        return moved

    def forget(self, version: Version) -> None:
        """Drop what was computed with weights of another version."""
        with self._tally.locked():
            for entry in self._held():
                if not entry.name.startswith(f"{version}-"):
                    self._drop(entry)

    def close(self) -> None:
        """Let go; with the last process the pool is gone."""
        self._tally.close()
        for shelf in self._shelves.values():
            shelf.folder.close()

    def _open_ssd(self, parent: Path, name: str) -> None:
        try:
            self._shelves["ssd"] = Shelf("ssd", Folder(parent, name))
        except OSError as error:
            self._give_up_ssd(error)

    def _room(self, num_bytes: int) -> Room | None:
        """Look at the files only when the tally says that there is too little room."""
        if self._memory_has(num_bytes):
            return Room(tier="dram", steps=())
        held = self._held()

        def left(tier: Tier) -> int:
            """What others are writing is claimed, and not to be seen yet."""
            unseen = self._tally[tier] - sum(entry.num_bytes for entry in held if entry.tier == tier)
            return self._limits.of(tier) - unseen

        return make_room(held, num_bytes, Limits(dram_bytes=left("dram"), ssd_bytes=left("ssd")), self.upcoming)

    def _memory_has(self, num_bytes: int) -> bool:
        """Whether memory has so much room, blanks of all processes included, which are then removed."""
        limit = self._limits.dram_bytes - num_bytes
        if self._tally["dram"] > limit:
            self._tally.add("dram", -self._shelves["dram"].clear_blanks())
        return self._tally["dram"] <= limit

    def _held(self) -> list[Held]:
        held = list(self._shelves["dram"].held())
        if self._limits.ssd_bytes:
            try:
                held += self._shelves["ssd"].held()
            except OSError as error:
                self._give_up_ssd(error)
        return held

    def _clear(self, steps: Sequence[Demote | Drop]) -> list[Held]:
        """Take the drops, and account for the others; returns what is to move, which nobody else moves or drops."""
        moving: list[Held] = []
        for step in steps:
            match step:
                case Drop():
                    self._drop(step.entry)
                case Demote():
                    self._shelves["dram"].lift(step.entry.name)
                    self._tally.add("dram", -step.entry.num_bytes)
                    self._tally.add("ssd", step.entry.num_bytes)
                    moving.append(step.entry)
        return moving

    def _drop(self, entry: Held) -> None:
        try:
            self._shelves[entry.tier].drop(entry.name)
        except OSError as error:
            self._give_up_ssd(error)  # nobody else removes anything of memory
        else:
            self._tally.add(entry.tier, -entry.num_bytes)

    def _drop_former(self, name: str) -> None:
        """What a request has left behind that was never resumed."""
        for tier, shelf in self._shelves.items():
            if num_bytes := shelf.num_bytes(name):
                self._drop(Held(name=name, tier=tier, num_bytes=num_bytes, used_s=0.0))

    def _demote(self, entry: Held) -> bool:
        moved = self._carry(entry.name, "dram", "ssd")
        if not moved:
            self._shelves["dram"].moving(entry.name).unlink(missing_ok=True)
            with self._tally.locked():
                self._tally.add("ssd", -entry.num_bytes)
        return moved

    def _carry(self, name: str, source: Tier, target: Tier) -> bool:
        """Copy what is marked as moving; False when it was taken meanwhile, or cannot be copied."""
        moving, shelf = self._shelves[source].moving(name), self._shelves[target]
        try:
            shelf.copy(moving, name)
            with self._tally.locked():
                if moving.exists():
                    shelf.place(name)
                    moving.unlink()
                    return True
        except OSError as error:
            if target == "ssd" and moving.exists():
                self._give_up_ssd(error)
        shelf.discard(name)
        return False

    def _not_written(self, tier: Tier, num_bytes: int, error: OSError) -> None:
        with self._tally.locked():
            self._tally.add(tier, -num_bytes)
        if tier == "ssd":
            self._give_up_ssd(error)
        else:
            _log.warning("KV pool: shared memory cannot be written (%s); a request will be computed again", error)

    def _give_up_ssd(self, error: OSError) -> None:
        """Nothing more is written there; what it holds can still be taken."""
        if self._limits.ssd_bytes:
            _log.warning("KV pool: the SSD is given up (%s); what has no room in memory is computed again", error)
        self._limits = replace(self._limits, ssd_bytes=0)
