"""Which requests have been met, in which rows of the slot table."""

import numpy as np

from sestina.rollout.drafts import IntArray
from sestina.rollout.slots import SlotTable

_NOBODY = np.uint64(0)


class Met:
    """A request is met once in each of its stays: after it has left, or in another row, it is fresh."""

    def __init__(self, num_slots: int) -> None:
        self._keys = np.full(num_slots, _NOBODY)
        self._slots: dict[int, int] = {}
        """By key, the row where it was met."""

    def num_fresh(self, table: SlotTable, slots: IntArray) -> int:
        """Return how many of the rows [N] have requests that have not been met."""
        return int(np.count_nonzero(self._keys[slots] != table.keys[slots]))

    def fresh(self, table: SlotTable, slots: IntArray) -> IntArray:
        """Return those of the rows [N] whose requests have not been met; mutates: now they have."""
        fresh = slots[self._keys[slots] != table.keys[slots]]
        if len(fresh):
            keys = table.keys[fresh]
            for slot, key in zip(fresh.tolist(), keys.tolist(), strict=True):
                self.forget(key)  # of an earlier row
                self._slots[key] = slot
            self._keys[fresh] = keys
        return fresh

    def forget(self, key: int) -> None:
        """The request has left: if it comes back, it is fresh."""
        slot = self._slots.pop(key, None)
        if slot is not None and int(self._keys[slot]) == key:
            self._keys[slot] = _NOBODY

    def clear(self) -> None:
        """Nobody has been met."""
        self._keys.fill(_NOBODY)
        self._slots.clear()
