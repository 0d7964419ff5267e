"""Whether the trainer gets the lengths that rollout generates: taking what ends first favours what is short."""

from collections import deque
from collections.abc import Iterable

import numpy as np

_DECILES = np.arange(1, 10) / 10


class BiasMeter:
    """Compares the latest responses generated with the latest trained on, as many as fit in a window of each."""

    def __init__(self, window: int) -> None:
        self._generated: deque[int] = deque(maxlen=window)
        self._trained: deque[int] = deque(maxlen=window)

    def generated(self, lengths: Iterable[int]) -> None:
        """Add responses that are complete, whether or not they will be trained on."""
        self._generated.extend(lengths)

    def trained(self, lengths: Iterable[int]) -> None:
        """Add responses of a batch."""
        self._trained.extend(lengths)

    def distance(self) -> float:
        """Return half the sum, over the deciles of the lengths generated, of the differences of shares.

        It is 0 for equal shares and 1 for nothing in common; NaN before both are there.

        Example:
            >>> meter = BiasMeter(window=10)
            >>> meter.generated(range(10))
            >>> meter.trained(range(5))
            >>> meter.distance()
            0.5
        """
        if not self._generated or not self._trained:
            return float("nan")
        edges = np.quantile(self._generated, _DECILES)
        return float(np.abs(_shares(self._generated, edges) - _shares(self._trained, edges)).sum() / 2)


def _shares(lengths: Iterable[int], edges: np.ndarray) -> np.ndarray:
    found = np.searchsorted(edges, list(lengths), side="left")
    return np.bincount(found, minlength=len(edges) + 1) / len(found)
