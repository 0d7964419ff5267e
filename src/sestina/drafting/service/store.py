"""The groups of one server: opened, grown within a memory bound, and forgotten after their time.

What their responses said is all its state. It may be lost at any time: clients find a group of another epoch, or none,
and bring again what they have.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sestina.core.units import Seconds, TokenArray
from sestina.drafting._native import Texts
from sestina.drafting.service.settings import StoreSettings
from sestina.drafting.service.wire import BATCH_BYTES, LENGTH, MAX_RUN_TOKENS, ROW, Columns

SWEEP_S = 1.0
"""Between two looks for groups past their time."""
GROUP_BYTES, RESPONSE_BYTES, RUN_BYTES, GROWTH = 1000, 300, 27, 9 / 8
"""As in native/texts.h: memory besides what is said, and capacity of a growing text over its length."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the store says to a frame."""

    num_fetched: int
    states: Columns
    rows: Columns
    tokens: TokenArray
    receipts: Columns
    unknown: list[int]
    full: list[int]


class DraftStore:
    """Groups by number, within `StoreSettings.memory_limit_bytes`."""

    def __init__(self, settings: StoreSettings, *, first_epoch: int) -> None:
        """`first_epoch` is above all epochs of the server's earlier life, such as the time in nanoseconds."""
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._next_epoch = first_epoch
        self._texts = Texts()
        self._sweep_at: Seconds = 0.0

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._texts.bytes()

    @property
    def num_groups(self) -> int:
        """Groups held."""
        return self._texts.size()

    @property
    def groups(self) -> list[int]:
        """Groups held, the longest unused first."""
        return self._texts.by_use()

    def register(self, group: int, ttl_s: Seconds, prompt: bytes, now: Seconds) -> bool | None:
        """Hold a group for `ttl_s` after its last use; False when it has another prompt, None when there is no room."""
        found = self._texts.has(group, ttl_s, prompt, now)
        if found >= 0:
            return bool(found)
        if not self._make_room(GROUP_BYTES + len(prompt), now):
            self.counts["refused_for_memory"] += 1
            return None
        self._texts.open(group, self._next_epoch, ttl_s, prompt, now)
        self._next_epoch += 1
        return True

    def exchange(self, asked: Columns, rows: Columns, tokens: npt.NDArray[np.int32], now: Seconds) -> Told:
        """Fetch what is asked for, then take the rows; each row is taken whole or, without room, not at all."""
        asked, rows = asked.ravel(), rows.ravel()
        self._texts.touch(asked, rows, tokens, now)
        lengths = rows.reshape(-1, ROW)[:, LENGTH]
        num_runs = int((lengths // MAX_RUN_TOKENS + 1).sum())
        self._make_room(len(lengths) * RESPONSE_BYTES + num_runs * RUN_BYTES + int(tokens.nbytes * GROWTH), now)
        room = max(0, self.settings.memory_limit_bytes - self.num_bytes)
        told, tallies = self._texts.exchange(asked, rows, tokens, BATCH_BYTES, room)
        for name, tally in zip(("gaps", "conflicts", "duplicates", "refused_for_memory"), tallies, strict=True):
            self.counts[name] += tally
        return Told(*told)

    def sweep(self, now: Seconds) -> None:
        """Forget the groups that nobody asked for in their time to live; does nothing more often than SWEEP_S."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_S
        for group in self._texts.expired(now):
            self._texts.drop(group)
            self.counts["expired_groups"] += 1

    def _make_room(self, num_bytes: int, now: Seconds) -> bool:
        """Evict groups that are not in use until there is room, if there can be."""
        limit = self.settings.memory_limit_bytes
        if self.num_bytes + num_bytes <= limit:
            return True
        for group in self._texts.by_use():
            if self.num_bytes + num_bytes <= limit or now - self._texts.used_s(group) < self.settings.idle_s:
                break
            self._texts.drop(group)
            self.counts["evicted_groups"] += 1
        return self.num_bytes + num_bytes <= limit
