"""All points of a calibration, in rounds: what disturbs a machine for a while falls on few takes of each point."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from sestina.core.units import Seconds
from sestina.policies.drafting.calibration import StepKind, StepPoint
from sestina.policies.drafting.serving import JoinPoint
from sestina.rollout.calibration.grid import Cell, Join
from sestina.rollout.calibration.passes import Passes

ROUNDS = 5
"""Takes that a time is the median of."""

HELD_OUT_EVERY = 4
"""One point in so many is not fitted to."""


def survey(
    passes: Passes, cells: Sequence[Cell], joins: Sequence[Join], *, say: Callable[[str], object]
) -> tuple[list[StepPoint], list[JoinPoint]]:
    """Return all points, measured."""
    steps: dict[tuple[Cell, StepKind, int], list[Seconds]] = defaultdict(list)
    joined: dict[Join, list[Seconds]] = defaultdict(list)
    for number in range(1, ROUNDS + 1):
        for cell in cells:
            for kind, length, seconds in _kinds(passes, cell):
                steps[cell, kind, length].append(seconds)
        for join in joins:
            joined[join].append(passes.joined_s(join))
        say(f"round {number} of {ROUNDS}: {len(steps)} points, and {len(joined)} of chunks that join")
    points = [_point(number, *key, median(taken)) for number, (key, taken) in enumerate(steps.items())]
    return points, [_joined(number, join, median(taken)) for number, (join, taken) in enumerate(joined.items())]


def _kinds(passes: Passes, cell: Cell) -> Iterator[tuple[StepKind, int, Seconds]]:
    yield "plain", 0, passes.plain_s(cell)
    for length in cell.lengths:
        verify_s, draft_s = passes.drafted_s(cell, length)
        yield "verify", length, verify_s
        yield "draft", length, draft_s


def _point(number: int, cell: Cell, kind: StepKind, length: int, seconds: Seconds) -> StepPoint:
    return StepPoint(
        kind=kind,
        batch=cell.batch,
        sequence_tokens=cell.sequence_tokens,
        length=length,
        seconds=seconds,
        held_out=_held_out(number),
    )


def _joined(number: int, join: Join, seconds: Seconds) -> JoinPoint:
    return JoinPoint(
        batch=join.cell.batch,
        sequence_tokens=join.cell.sequence_tokens,
        chunks=join.chunks,
        text_tokens=join.text_tokens,
        cached_tokens=join.cached_tokens,
        seconds=seconds,
        held_out=_held_out(number),
    )


def _held_out(number: int) -> bool:
    return number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
