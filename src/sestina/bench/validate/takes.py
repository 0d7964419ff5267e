"""Emulated runs, repeated, with a recording's own beside each: on a busy machine processor time grows too, and drifts.

What the recording's run takes over its simulation is the pace of that moment: what steps take in a run on this machine,
over what the calibration's took. Predictions are made for the mean pace of their setting's takes.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sestina.bench.validate.outturn import Outturn


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One run."""

    outturn: Outturn
    pace: float
    """Of the recording's run just before it."""


def repeated(pace: Callable[[int], float], run: Callable[[int], Outturn], times: int) -> list[Take]:
    """Return so many takes, each given its number; recordings and runs take turns."""
    return [Take(pace=pace(number), outturn=run(number)) for number in range(times)]


def pace_of(takes: Sequence[Take]) -> float:
    """Return the mean pace."""
    return statistics.fmean(take.pace for take in takes)
