"""The spread of lengths between groups, such that a baseline's rollout is as it is published.

The papers publish means and limits of lengths, no distributions. The baseline alone is simulated for it.
"""

import math
from collections.abc import Mapping
from statistics import fmean

from sestina.core.errors import ConfigError

SPREADS = (0.3, 0.6, 1.0, 1.4, 2.0)
"""Deviations of the logarithm that are tried; a finer grid is below what iterations differ by. Of Seer's workloads
groups differ by three tenths of their mean at 0.3, and a third to a half of all tokens are in responses at their limit
at 2.0.
"""


def spread_of(published: Mapping[str, float], simulated: Mapping[float, Mapping[str, float]]) -> float:
    """Return the spread whose simulated values are nearest to all published ones, by the mean ratio to them.

    `simulated` has by spread what `published` names, and may have more. Of equally near spreads the first is taken.
    Raises ConfigError on a published value that has no ratio.
    """
    wrong = [f"{name}: {value:g} is not allowed; above 0" for name, value in published.items() if not value > 0]
    if wrong:
        raise ConfigError(wrong)

    def distance(values: Mapping[str, float]) -> float:
        return fmean(_ratio(values[name], value) for name, value in published.items())

    return min(simulated, key=lambda spread: distance(simulated[spread]))


def _ratio(value: float, published: float) -> float:
    """Return the logarithm of how many times too much or too little a value is."""
    return abs(math.log(value / published)) if value > 0 else math.inf
