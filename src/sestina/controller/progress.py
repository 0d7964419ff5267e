"""What the run is doing, kept for whoever looks: the status file, and one line per step."""

import asyncio
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from sestina.core.units import Seconds
from sestina.telemetry.display import plain_line
from sestina.telemetry.status import WRITE_EVERY_S, RankProcess, RunState, Status, StatusWriter, StepSummary

SHOWN_ROWS = 12
_log = logging.getLogger("sestina.steps")


def show_steps(*, shown: bool) -> None:
    """Print the line per step, unless a live display shows them."""
    _log.propagate = False
    _log.setLevel(logging.INFO if shown else logging.CRITICAL)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _log.addHandler(handler)


class Progress:
    """The status of a run; `publish` writes it until cancelled."""

    def __init__(self, path: Path, *, name: str, num_steps: int) -> None:
        self._writer = StatusWriter(path)
        self._name = name
        self._num_steps = num_steps
        self._state: RunState = "starting"
        self._phase: Callable[[], str] = lambda: "starting"
        self._rows: deque[StepSummary] = deque(maxlen=SHOWN_ROWS)
        self._step_s: list[Seconds] = []
        self._accuracy: float | None = None
        self._started_at = time.time()
        self._ranks: Callable[[], tuple[RankProcess, ...]] = tuple
        self.step = 0

    def watch(self, ranks: Callable[[], tuple[RankProcess, ...]]) -> None:
        """Learn who takes part, from a function that says it at any moment."""
        self._ranks = ranks

    def phase(self, describe: str | Callable[[], str]) -> None:
        """Say what the run is waiting for, as text or as a function that says it at any moment."""
        self._phase = (lambda: describe) if isinstance(describe, str) else describe
        self.write()

    def begin(self, step: int) -> None:
        """The ranks are up; `step` steps have been taken before."""
        self._state, self.step = "running", step

    def evaluated(self, accuracy: float) -> None:
        """Held-out prompts have been answered."""
        self._accuracy = accuracy

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is complete."""
        self.step = step
        self._step_s.append(metrics["perf/step_s"])
        summary = StepSummary.of(step, self._num_steps, metrics, self._eta_s() or 0.0)
        self._rows.append(summary)
        _log.info(plain_line(summary))
        self.write()

    def end(self, state: RunState, why: str) -> None:
        """The run is over."""
        self._state = state
        self.phase(why)

    async def publish(self, tick: Callable[[], object]) -> None:
        """Write the status a few times a second, and call `tick` each time."""
        while True:
            self.write()
            tick()
            await asyncio.sleep(WRITE_EVERY_S)

    def write(self) -> None:
        """Write the status, unless it was written a moment ago."""
        status = Status(
            name=self._name,
            pid=os.getpid(),
            state=self._state,
            completed=self.step >= self._num_steps,
            phase=self._phase(),
            step=self.step,
            num_steps=self._num_steps,
            accuracy=self._accuracy,
            eta_s=self._eta_s(),
            rows=tuple(self._rows),
            ranks=self._ranks(),
            started_at=self._started_at,
            updated_at=time.time(),
        )
        self._writer.write(status, time.monotonic())

    def _eta_s(self) -> Seconds | None:
        """Steps left, at the pace of the latest ten; evaluations count with the step they follow."""
        if not self._step_s:
            return None
        recent = self._step_s[-10:]
        return (self._num_steps - self.step) * sum(recent) / len(recent)
