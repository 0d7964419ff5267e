"""Emulated runs, repeated, with the machine's own speed beside each: processor time too grows on a busy machine.

A fixed step of the engine is timed right before and after every run. What it takes, over what it took around the
calibration, is the run's drift. Runs are repeated until enough of them have little, or as often as is sensible; those
with least count. A run's outcome has no say in that.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sestina.bench.validate.outturn import Outturn
from sestina.core.units import Seconds
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.calibration.grid import Cell
from sestina.rollout.calibration.passes import Passes
from sestina.rollout.config import TorchEngineConfig

MODEL = Path("assets/sums")
CELL = Cell(batch=16, sequence_tokens=64, room_tokens=128, lengths=())
ENGINE = TorchEngineConfig(
    kind="torch", device="cpu", dtype="float32", kv_capacity_tokens=4096, max_running=16, max_step_tokens=256
)
TIMES = 3
"""Spans of a few steps that a reference is the median of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One run."""

    outturn: Outturn
    drift: float
    """The machine's speed: what a fixed step took around the run, over what it took around the calibration."""


class Reference:
    """A fixed step, timed again and again."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        shape = read_shape(MODEL)
        self._passes = Passes(ENGINE, shape, read_weights(MODEL, shape), max_context_tokens=256)
        self._base_s: Seconds = 1.0

    def seconds(self) -> Seconds:
        """Return what the step takes now."""
        return statistics.median(self._passes.plain_s(CELL) for _ in range(TIMES))

    def start_from(self, *taken_s: Seconds) -> None:
        """What the step took around the calibration is 1 from now on."""
        self._base_s = statistics.fmean(taken_s)

    def drifted(self, run: Callable[[], Outturn]) -> Take:
        """Return what a run came to, with the drift around it."""
        before_s = self.seconds()
        outturn = run()
        return Take(outturn=outturn, drift=statistics.fmean((before_s, self.seconds())) / self._base_s)


def repeated(take: Callable[[], Take], *, wanted: int, most: int, drift: float) -> list[Take]:
    """Return `wanted` takes: those with least drift of as many as it needed until enough had at most `drift`."""
    takes: list[Take] = []
    while len(takes) < most and sum(abs(each.drift - 1) <= drift for each in takes) < wanted:
        takes.append(take())
    return sorted(takes, key=lambda each: abs(each.drift - 1))[:wanted]
