"""How many workers each ranking group gets (RhymeRL, section 5.2, figure 12; algorithms-and-numbers R-E and 4.4).

Groups are to end one after the other, d apart, the first no sooner than the trainer is free: group i by t0 + i * d. The
plan with the least d that the workers suffice for is found by bisection.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sestina.core.units import Seconds

RolloutTime: TypeAlias = Callable[[float, int], Seconds]
"""tau: time of a group of this mean length on this many workers; falls with workers, rises with length."""

ROUNDING = 1e-9
"""By which a group may end late: the widest spacing is defined by one that ends exactly in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBounds:
    """What there is to give."""

    total: int
    fewest: int
    """For each group."""
    most: int


def plan_workers(
    lengths: Sequence[float], tau: RolloutTime, bounds: WorkerBounds, *, train_s: Seconds, precision_s: Seconds = 1.0
) -> list[int]:
    """Return the workers of each group, short to long; every worker is given away unless all groups have the most.

    `lengths` are the groups' mean historical lengths, rising; `train_s` is the last training step's time. Where the
    widest spacing is not enough either, workers are shared in proportion to lengths. What a plan leaves over goes to
    the longest groups.
    """
    assert list(lengths) == sorted(lengths), "lengths of ranking groups must rise"
    needed = bounds.fewest * len(lengths)
    assert 1 <= bounds.fewest <= bounds.most, f"from {bounds.fewest} to {bounds.most} workers"
    assert bounds.total >= needed, f"{bounds.total} workers, at least {needed} needed"
    first_s = max(tau(lengths[0], bounds.most), train_s)
    widest_s = max(0.0, (tau(lengths[-1], bounds.fewest) - first_s) / max(1, len(lengths) - 1))

    def need(spacing_s: Seconds) -> list[int] | None:
        return least_workers(lengths, tau, bounds, first_s=first_s, spacing_s=spacing_s)

    best = need(widest_s)
    if best is None:
        return _hand_out(_proportional(lengths, bounds), bounds)
    low_s, high_s = 0.0, widest_s
    while high_s - low_s > precision_s:
        middle_s = (low_s + high_s) / 2
        plan = need(middle_s)
        if plan is None:
            low_s = middle_s
        else:
            best, high_s = plan, middle_s
    return _hand_out(best, bounds)


def least_workers(
    lengths: Sequence[float], tau: RolloutTime, bounds: WorkerBounds, *, first_s: Seconds, spacing_s: Seconds
) -> list[int] | None:
    """Return the fewest workers by which group i ends at `first_s + i * spacing_s`; None when there are too few."""
    counts: list[int] = []
    for i, length in enumerate(lengths):
        due_s = (first_s + i * spacing_s) * (1 + ROUNDING)
        allowed = range(bounds.fewest, bounds.most + 1)
        enough = next((count for count in allowed if tau(length, count) <= due_s), None)
        if enough is None:
            return None
        counts.append(enough)
    return counts if sum(counts) <= bounds.total else None


def _proportional(lengths: Sequence[float], bounds: WorkerBounds) -> list[int]:
    counts = [bounds.fewest] * len(lengths)
    spare, weight = bounds.total - sum(counts), sum(lengths) or 1.0
    return [
        min(count + int(spare * length / weight), bounds.most) for count, length in zip(counts, lengths, strict=True)
    ]


def _hand_out(counts: list[int], bounds: WorkerBounds) -> list[int]:
    spare = bounds.total - sum(counts)
    for i in reversed(range(len(counts))):
        given = min(spare, bounds.most - counts[i])
        counts[i] += given
        spare -= given
    return counts
