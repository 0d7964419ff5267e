"""Keys that change, and the least of them in O(log n).

A heap from which nothing is ever taken out of the middle: a key that changed leaves its former place behind, which is
thrown away when it comes to the top, or when such places outnumber the others.
"""

from heapq import heapify, heappop, heappush

SPARE = 64
"""Places left behind that no cleaning is worth."""


class Ranking:
    """Items (integers) by key; of equal keys, the item that was first to get its key comes first.

    Example:
        >>> ranking = Ranking()
        >>> ranking.put(7, 3.0)
        >>> ranking.put(8, 2.0)
        >>> ranking.put(8, 5.0)
        >>> ranking.first()
        7
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        """(key, ticket, item)"""
        self._tickets: dict[int, int] = {}
        """Of the place in the heap that counts, by item."""
        self._num_tickets = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def put(self, item: int, key: float) -> None:
        """Give an item its key, in place of the one it had."""
        self._num_tickets += 1
        self._tickets[item] = self._num_tickets
        heappush(self._heap, (key, self._num_tickets, item))
        if len(self._heap) > 2 * len(self._tickets) + SPARE:
            self._heap = [place for place in self._heap if self._counts(place)]
            heapify(self._heap)

    def drop(self, item: int) -> None:
        """Forget an item, if it is there."""
        self._tickets.pop(item, None)

    def first(self) -> int | None:
        """Return the item with the least key; None when there is none."""
        while self._heap:
            if self._counts(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def _counts(self, place: tuple[float, int, int]) -> bool:
        return self._tickets.get(place[2]) == place[1]
