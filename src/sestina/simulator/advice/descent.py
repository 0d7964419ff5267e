"""Coordinate descent over axes: deterministic, and no point is asked about twice by whoever remembers."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sestina.simulator.advice.axes import Axis

Point: TypeAlias = tuple[int, ...]
"""The place of an option on each axis."""

_STRIDES = 4
"""A walk along an axis begins with steps of this part of it."""

_WORTH = 0.005
"""The share by which a point must be cheaper for the search to go there: less is not worth the points it takes."""


def descend(
    axes: Sequence[Axis], start: Point, *, allowed: Callable[[Point], bool], cost: Callable[[Point], float]
) -> Point:
    """Return a point that no change along a single axis betters by much; `cost` is infinite where nothing is known."""
    best, before = start, None
    while best != before:
        before = best
        for number in range(len(axes)):
            best = _along(axes, number, best, allowed, cost)
    return best


def _along(
    axes: Sequence[Axis], number: int, best: Point, allowed: Callable[[Point], bool], cost: Callable[[Point], float]
) -> Point:
    points = [(*best[:number], place, *best[number + 1 :]) for place in range(len(axes[number].options))]
    points = [point for point in points if point == best or allowed(point)]
    if axes[number].ordered and math.isfinite(cost(best)):
        return _walk(points, points.index(best), cost)
    return _better(best, points, cost)


def _walk(points: Sequence[Point], at: int, cost: Callable[[Point], float]) -> Point:
    """Go where it is better, by strides that are halved when neither side is."""
    stride = max(1, len(points) // _STRIDES)
    while stride:
        sides = [points[place] for place in (at - stride, at + stride) if 0 <= place < len(points)]
        found = points.index(_better(points[at], sides, cost))
        stride = stride // 2 if found == at else stride
        at = found
    return points[at]


def _better(best: Point, others: Sequence[Point], cost: Callable[[Point], float]) -> Point:
    found = min((best, *others), key=cost)
    return found if cost(found) < (1 - _WORTH) * cost(best) else best
