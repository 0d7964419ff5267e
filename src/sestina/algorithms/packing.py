"""Micro-batches under a token budget, without padding (AReaL, section 5.2, Algorithm 1)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def pack(lengths: Sequence[int], budget: int, *, multiple_of: int = 1) -> list[list[int]]:
    """Return which samples go into which micro-batch; the number of micro-batches is a multiple of `multiple_of`.

    As many micro-batches as Algorithm 1 needs within `budget`, at the smallest common capacity that still gives as few:
    they then hold nearly equal numbers of tokens. Samples stay in order within a micro-batch, and equal lengths always
    give equal micro-batches. With too few samples for the multiple, the last micro-batches are empty. Raises ValueError
    when a sample is longer than the budget.

    Example:
        >>> pack([5, 4, 3, 2], budget=8)
        [[0, 3], [1, 2]]
    """
    sizes = np.asarray(lengths, np.int64)
    if sizes.max() > budget:
        raise ValueError(f"a sample of {sizes.max()} tokens exceeds the micro-batch budget of {budget}")
    count = _round_up(-(-int(sizes.sum()) // budget), multiple_of)
    found = _allocate(sizes, budget, count)
    while (needed := int(found.max()) + 1) > count:
        count = _round_up(needed, multiple_of)
        found = _allocate(sizes, budget, count)
    low, high = int(max(sizes.max(), sizes.sum() // count)) - 1, budget
    while high - low > 1:
        middle = (low + high) // 2
        candidate = _allocate(sizes, middle, count)
        if candidate.max() < count:
            found, high = candidate, middle
        else:
            low = middle
    return [np.flatnonzero(found == batch).tolist() for batch in range(count)]


def _allocate(sizes: IntArray, capacity: int, min_batches: int) -> IntArray:
    """Algorithm 1; returns each sample's batch.

    Longest first, into the fitting batch with the fewest samples; ties go to the one with the fewest tokens.
    """
    counts, totals = np.zeros((2, len(sizes)), np.int64)
    chosen = np.zeros(len(sizes), np.int64)
    opened = 0
    for sample in np.argsort(-sizes, kind="stable"):
        load = counts[:opened] * (capacity + 1) + totals[:opened]
        load[totals[:opened] + sizes[sample] > capacity] = np.iinfo(np.int64).max
        best = int(load.argmin()) if opened else 0
        if opened < min_batches or load[best] == np.iinfo(np.int64).max:
            best, opened = opened, opened + 1
        chosen[sample] = best
        counts[best] += 1
        totals[best] += sizes[sample]
    return chosen


def _round_up(count: int, multiple_of: int) -> int:
    return -(-count // multiple_of) * multiple_of
