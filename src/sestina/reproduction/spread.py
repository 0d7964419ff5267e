"""The spread of lengths between groups, such that a baseline has the tail, or the idle time, that is published.

The papers publish means and limits of lengths, no distributions. The baseline alone is simulated for it.
"""

from collections.abc import Mapping

from sestina.core.errors import ConfigError

SPREADS = (0.3, 0.6, 1.0, 1.4, 2.0)
"""Deviations of the logarithm that are tried; a finer grid is below what iterations differ by. Of Seer's workloads
groups differ by three tenths of their mean at 0.3, and a third to a half of all tokens are in responses at their limit
at 2.0.
"""


def spread_of(share: float, simulated: Mapping[float, float]) -> float:
    """Return the spread whose simulated share of a rollout is nearest to `share`; of equally near ones the first.

    Raises ConfigError on a share that is none.
    """
    if not 0 < share < 1:
        raise ConfigError([f"share: {share:g} is not allowed; between 0 and 1"])
    return min(simulated, key=lambda spread: abs(simulated[spread] - share))
