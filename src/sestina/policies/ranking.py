"""Keys that change, and the least of them in O(log of the number of different keys).

Items of one key stand in a queue; a heap holds the keys. Nothing is ever taken out of the middle of a queue: an item
whose key changed leaves its former place behind, which is thrown away when it comes to the front, or when such places
outnumber the others. Lengths and counts in tokens repeat, so a million items need a heap of some thousand keys.
"""

from collections import deque
from heapq import heappop, heappush, nsmallest

SPARE = 64
"""Places left behind that no cleaning is worth."""

_BITS = 48
_ITEM = (1 << _BITS) - 1


class Ranking:
    """Items (integers from 0 to 2**48 - 1) by integer key; of equal keys, the one that was given first comes first.

    Example:
        >>> ranking = Ranking()
        >>> ranking.put(7, 3)
        >>> ranking.put(8, 2)
        >>> ranking.put(8, 5)
        >>> ranking.first()
        7
    """

    def __init__(self) -> None:
        self._keys: list[int] = []
        """Heap of the keys that have a queue."""
        self._queues: dict[int, deque[int]] = {}
        """Places by key: key, ticket and item in one integer."""
        self._places: dict[int, int] = {}
        """The place that counts, by item."""
        self._num_places = 0
        self._num_tickets = 0

    def __len__(self) -> int:
        return len(self._places)

    def put(self, item: int, key: int) -> None:
        """Give an item its key, in place of the one it had."""
        assert 0 <= item <= _ITEM, f"item {item}, allowed are 0 to {_ITEM}"
        self._num_tickets += 1
        place = (((key << _BITS) | self._num_tickets) << _BITS) | item
        self._places[item] = place
        self._stand(place, key)
        if self._num_places > 2 * len(self._places) + SPARE:
            self._clean()

    def drop(self, item: int) -> None:
        """Forget an item, if it is there."""
        self._places.pop(item, None)

    def key(self, item: int) -> int:
        """Return the key that an item was given last."""
        return self._places[item] >> (2 * _BITS)

    def first(self) -> int | None:
        """Return the item with the least key; None when there is none."""
        while self._keys:
            queue = self._queues[self._keys[0]]
            while queue:
                item = queue[0] & _ITEM
                if self._places.get(item) == queue[0]:
                    return item
                queue.popleft()
                self._num_places -= 1
            del self._queues[heappop(self._keys)]
        return None

    def least(self, count: int) -> list[int]:
        """Return up to `count` items from the least key on; O(number of items), mutates nothing."""
        return [place & _ITEM for place in nsmallest(count, self._places.values())]

    def _stand(self, place: int, key: int) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            heappush(self._keys, key)
        queue.append(place)
        self._num_places += 1

    def _clean(self) -> None:
        self._keys, self._queues, self._num_places = [], {}, 0
        for place in sorted(self._places.values()):
            self._stand(place, place >> (2 * _BITS))
