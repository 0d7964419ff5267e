"""One line of numbers per step, in metrics.jsonl and on Weights & Biases.

    {"step": 12, "time": 1790000000.0, "rollout/raw_reward": 0.73, "train/grad_norm": null}

A step is logged once, with everything known of it, before its checkpoint is saved; so every step before a resumed one
has its line. Numbers that are not finite are null in the file.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sestina.core.errors import DataError, RunDirError
from sestina.telemetry.aside import written_aside
from sestina.telemetry.config import TelemetryConfig
from sestina.telemetry.wandb_run import WandbRun

FILE_NAME = "metrics.jsonl"
NAMESPACES = ("rollout/", "train/", "perf/", "eval/", "spec/", "async/")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One line of the file."""

    step: int
    """Steps taken when the line was logged; 0 is before training."""
    time: float
    """Unix seconds."""
    values: dict[str, float]
    """By name; NaN where the file has null."""


class MetricsWriter:
    """Logs steps in increasing order from `first_step` on.

    Lines of that step and later, which a resumed run will log again, are dropped from the file. Raises UserError when
    W&B does not start; the file is then as it was.
    """

    def __init__(
        self, run_dir: Path, config: TelemetryConfig, *, resolved: dict[str, Any], name: str, first_step: int
    ) -> None:
        self._wandb = None if config.wandb == "off" else WandbRun(run_dir, config, resolved=resolved, name=name)
        path = run_dir / FILE_NAME
        if path.exists():
            _drop_from(path, first_step)
        self._file = path.open("ab")
        self._next_step = first_step

    def log(self, step: int, values: dict[str, float]) -> None:
        """Write the line of a step; raises ValueError on a name outside NAMESPACES or a step logged before."""
        foreign = [name for name in values if not name.startswith(NAMESPACES)]
        if foreign:
            raise ValueError(f"metric '{foreign[0]}' must start with one of {', '.join(NAMESPACES)}")
        if step < self._next_step:
            raise ValueError(f"step {step} is logged already; the next is {self._next_step} or later")
        self._next_step = step + 1
        numbers = {name: float(value) for name, value in values.items()}
        self._file.write(msgspec.json.encode({"step": step, "time": time.time(), **numbers}) + b"\n")
        self._file.flush()
        if self._wandb:
            self._wandb.log(step, numbers)

    def close(self, *, failed: bool = False) -> None:
        """Close the file and end the W&B run, which will be shown as failed or finished."""
        self._file.close()
        if self._wandb:
            self._wandb.close(failed=failed)


def read_metrics(run_dir: Path) -> list[StepMetrics]:
    """Return the lines in order; a last line still being written is left out.

    Raises RunDirError when there is no such file, DataError naming the line when one is not of metrics.
    """
    path = run_dir / FILE_NAME
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise RunDirError(f"{path}: {error.strerror}; a run directory has this file after its first step") from None
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1) if line.endswith(b"\n")]


def series(lines: list[StepMetrics], name: str) -> list[tuple[int, float]]:
    """Return (step, value) wherever the named metric was logged and is a number."""
    found = ((line.step, line.values.get(name, math.nan)) for line in lines)
    return [(step, value) for step, value in found if not math.isnan(value)]


def _drop_from(path: Path, first_step: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    complete = [line for line in lines if line.endswith(b"\n")]
    kept = [line for i, line in enumerate(complete, start=1) if _parse(path, i, line).step < first_step]
    with written_aside(path) as aside:
        aside.write_bytes(b"".join(kept))


def _parse(path: Path, number: int, line: bytes) -> StepMetrics:
    try:
        numbers = msgspec.json.decode(line, type=dict[str, float | None])
        step, when = numbers.pop("step"), numbers.pop("time")
    except (msgspec.MsgspecError, KeyError) as error:
        raise DataError(f"{path}:{number}: not a line of metrics: {error}") from None
    if step is None or when is None:
        raise DataError(f"{path}:{number}: not a line of metrics: 'step' or 'time' is null")
    values = {name: math.nan if value is None else value for name, value in numbers.items()}
    return StepMetrics(step=int(step), time=when, values=values)
