"""Whether the trainer gets what rollout generates: taking what ends first favours what is short, and what is easy."""

from collections import deque
from collections.abc import Iterable

import numpy as np

_DECILES = np.arange(1, 10) / 10


class BiasMeter:
    """Compares one number of the latest generated with that of the latest trained on, a window of each.

    That is a response's length in tokens, or a prompt's share of right answers.
    """

    def __init__(self, window: int) -> None:
        self._generated: deque[float] = deque(maxlen=window)
        self._trained: deque[float] = deque(maxlen=window)

    def generated(self, values: Iterable[float]) -> None:
        """Add what is complete, whether or not it will be trained on."""
        self._generated.extend(values)

    def trained(self, values: Iterable[float]) -> None:
        """Add what a batch holds."""
        self._trained.extend(values)

    def distance(self) -> float:
        """Return half the sum, over the deciles of what was generated, of the differences of shares.

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


def _shares(values: Iterable[float], edges: np.ndarray) -> np.ndarray:
    found = np.searchsorted(edges, list(values), side="left")
    return np.bincount(found, minlength=len(edges) + 1) / len(found)
