"""Room in a pool of two tiers: what leaves it, and where what comes goes (Seer, section 3.2: a pool in DRAM and SSD).

Entries leave in order of their last use, those whose requests are next in the queue never. What leaves DRAM goes to the
SSD, if the SSD has room or holds what was used before it; otherwise it is dropped, and computed again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.units import Seconds

Tier: TypeAlias = Literal["dram", "ssd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An entry of the pool."""

    name: str
    tier: Tier
    num_bytes: int
    used_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the tiers may hold."""

    dram_bytes: int
    ssd_bytes: int
    """0: there is none."""

    def of(self, tier: Tier) -> int:
        """Return the limit of a tier."""
        return self.dram_bytes if tier == "dram" else self.ssd_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Demote:
    """Move an entry from DRAM to the SSD."""

    entry: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Forget an entry."""

    entry: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where a new entry goes, once these steps are taken in order."""

    tier: Tier
    steps: tuple[Demote | Drop, ...]


def make_room(held: Sequence[Held], num_bytes: int, limits: Limits, upcoming: Collection[str]) -> Room | None:
    """Return how `num_bytes` more fit, in DRAM if at all possible; None when neither tier can take them.

    `upcoming`: names of entries that are next in the queue, and stay where they are.
    """
    dram = _Tier("dram", held, limits, upcoming)
    ssd = _Tier("ssd", held, limits, upcoming)
    victims = dram.victims(num_bytes)
    if victims is not None:
        return Room(tier="dram", steps=tuple(step for victim in victims for step in _evict(victim, ssd)))
    victims = ssd.victims(num_bytes)
    return None if victims is None else Room(tier="ssd", steps=tuple(Drop(entry=victim) for victim in victims))


class _Tier:
    """What one tier holds while steps are planned."""

    def __init__(self, tier: Tier, held: Sequence[Held], limits: Limits, upcoming: Collection[str]) -> None:
        here = [entry for entry in held if entry.tier == tier]
        self._limit = limits.of(tier)
        self._free = self._limit - sum(entry.num_bytes for entry in here)
        self._leaving = sorted((entry for entry in here if entry.name not in upcoming), key=lambda entry: entry.used_s)

    def victims(self, num_bytes: int) -> list[Held] | None:
        """Return the least recently used entries without which `num_bytes` fit; None when even that is too little."""
        chosen: list[Held] = []
        free = self._free
        for entry in self._leaving:
            if free >= num_bytes:
                break
            chosen.append(entry)
            free += entry.num_bytes
        return chosen if free >= num_bytes and num_bytes <= self._limit else None

    def take(self, num_bytes: int, victims: list[Held]) -> None:
        """Let `num_bytes` in, in place of some victims."""
        self._leaving = self._leaving[len(victims) :]
        self._free += sum(entry.num_bytes for entry in victims) - num_bytes


def _evict(entry: Held, ssd: _Tier) -> list[Demote | Drop]:
    """An entry leaves DRAM."""
    victims = ssd.victims(entry.num_bytes)
    if victims is None or any(victim.used_s > entry.used_s for victim in victims):
        return [Drop(entry=entry)]
    ssd.take(entry.num_bytes, victims)
    return [*(Drop(entry=victim) for victim in victims), Demote(entry=entry)]
