"""Which prompts roll out together, and on which workers (RhymeRL, section 5.1; algorithms-and-numbers R-D).

Prompts are ranked by the median length of their responses in the last epoch and cut into equal ranking groups, short to
long. Workers stand in a line; groups take consecutive ranges of it, ascending in odd steps and descending in even ones,
so that a worker that ends one step late begins the next with short responses.
"""

import statistics
from collections.abc import Sequence
from itertools import accumulate


def ranking_groups(responses: Sequence[Sequence[int]], num_groups: int) -> list[list[int]]:
    """Return the prompts, by index, of each ranking group, shortest first.

    `responses` are the lengths of each prompt's responses in the last epoch, at least one each. Groups differ in size
    by at most one prompt, the shorter ones being the larger; equal medians stay in order of index.
    """
    assert 1 <= num_groups <= len(responses), f"{num_groups} groups of {len(responses)} prompts"
    medians = [statistics.median(lengths) for lengths in responses]
    ranked = sorted(range(len(responses)), key=lambda prompt: (medians[prompt], prompt))
    size, larger = divmod(len(ranked), num_groups)
    ends = list(accumulate(size + (group < larger) for group in range(num_groups)))
    return [ranked[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def worker_ranges(counts: Sequence[int], step: int) -> list[range]:
    """Return the workers of each ranking group at a step (from 1), given how many each has.

    With unequal counts two consecutive steps complement each other only roughly (algorithms-and-numbers 4.4).
    """
    order = list(counts) if step % 2 else list(reversed(counts))
    ends = list(accumulate(order))
    ranges = [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    return ranges if step % 2 else ranges[::-1]
