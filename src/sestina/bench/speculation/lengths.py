"""Forced lengths out of lognormal draws: cut, or stretched until the longest is so many times the mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST_TOKENS = 4
_HALVINGS = 50
_MOST_POWER = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Lengths that are drawn longer are cut."""

    median_tokens: int
    most_tokens: int

    def of(self, logs: npt.NDArray[np.float64]) -> Sequence[int]:
        """Return tokens of responses [N] whose lengths differ from the median by these logarithms [N]."""
        lengths = self.median_tokens * np.exp(logs)
        return lengths.round().astype(int).clip(LEAST_TOKENS, self.most_tokens).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretched:
    """Nothing is cut: the draws' logarithms are multiplied until the tail is as long as it is to be."""

    mean_tokens: int
    longest_over_mean: float

    def of(self, logs: npt.NDArray[np.float64]) -> Sequence[int]:
        """Return tokens of responses [N] in the order of these logarithms [N]; N is above the ratio."""
        assert self.longest_over_mean < len(logs), f"no {len(logs)} lengths have that ratio: {self.longest_over_mean}"
        low, high = 0.0, _MOST_POWER
        for _ in range(_HALVINGS):
            power = (low + high) / 2
            low, high = (power, high) if 1 / _shares(logs, power).mean() < self.longest_over_mean else (low, power)
        shares = _shares(logs, low)
        return (self.mean_tokens * shares / shares.mean()).round().astype(int).clip(LEAST_TOKENS).tolist()


def _shares(logs: npt.NDArray[np.float64], power: float) -> npt.NDArray[np.float64]:
    """Return lengths over the longest."""
    return np.exp(power * (logs - logs.max()))
