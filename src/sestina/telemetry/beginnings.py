"""How far responses of one group begin alike: two numbers for each say it of every two."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sestina.core.units import TokenArray


class Beginning(NamedTuple):
    """Of one response among its siblings."""

    text_rank: int
    """Its place when all are in lexicographic order of their tokens, from 0."""
    common_tokens: int
    """With how many tokens it begins as the one before it in that order does; 0 for the first."""


ALONE = Beginning(0, 0)
"""Of a response without siblings."""


def beginnings_of(texts: Sequence[TokenArray]) -> list[Beginning]:
    """Return the beginning of each text among all of them. What two have in common is the least between them.

    O(n log n) comparisons of texts.
    """
    order = sorted(range(len(texts)), key=lambda index: texts[index].astype(">i4").tobytes())
    found = [ALONE] * len(texts)
    for rank, index in enumerate(order):
        common = _common(texts[order[rank - 1]], texts[index]) if rank else 0
        found[index] = Beginning(rank, common)
    return found


def _common(one: TokenArray, other: TokenArray) -> int:
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length
