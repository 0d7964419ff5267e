"""Response lengths that are heavy-tailed between groups and alike within one, as Seer shows them (v3, figures 2, 4).

Both spreads are lognormal, and what would be longer than a response may be is cut there.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

LengthArray: TypeAlias = npt.NDArray[np.int64]

_ROUNDS = 50
"""Cutting lowers the mean, which another scale brings back; by then to the last digit that matters."""


def correlated_lengths(
    *,
    num_groups: int,
    group_size: int,
    mean_tokens: float,
    max_tokens: int,
    between: float,
    within: float,
    seed: int,
    epoch: int = 0,
) -> LengthArray:
    """Return [num_groups, group_size] tokens, from 1 to `max_tokens`, whose mean is about `mean_tokens`.

    `between` and `within` are deviations of the logarithm. In another epoch the same groups have what is between them,
    and responses of their own.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.lognormal(0.0, between, (num_groups, 1))
    again = np.random.default_rng([seed, epoch]) if epoch else rng
    drawn = drawn * again.lognormal(0.0, within, (num_groups, group_size))
    scale = 1.0
    for _ in range(_ROUNDS):
        scale *= mean_tokens / np.clip(scale * drawn, 1, max_tokens).mean()
    return np.clip(scale * drawn, 1, max_tokens).astype(np.int64)
