"""The file through which a run tells what it is doing, for the launcher and whoever else looks."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from sestina.core.errors import RunDirError
from sestina.core.units import Seconds
from sestina.telemetry.aside import written_aside

RunState: TypeAlias = Literal["starting", "running", "finished", "stopped", "failed"]

WRITE_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """What is said of one step, on its line and in the live display."""

    step: int
    num_steps: int
    reward: float | None
    """Mean over the batch; None when every reward failed."""
    accuracy: float | None
    """On held-out prompts; None when the step was not followed by an evaluation."""
    response_tokens: float
    """Mean length."""
    tokens_per_s: float
    step_s: Seconds
    rollout_s: Seconds
    train_s: Seconds
    weights_s: Seconds
    eta_s: Seconds
    """Until the last step ends."""

    @classmethod
    def of(cls, step: int, num_steps: int, values: Mapping[str, float], eta_s: Seconds) -> "StepSummary":
        """Pick from the metrics of a step; raises KeyError when one that every step has is missing."""
        return cls(
            step=step,
            num_steps=num_steps,
            reward=None if isnan(values["rollout/raw_reward"]) else values["rollout/raw_reward"],
            accuracy=values.get("eval/accuracy"),
            response_tokens=values["rollout/response_len/mean"],
            tokens_per_s=values["perf/tokens_per_s"],
            step_s=values["perf/step_s"],
            rollout_s=values["perf/rollout_s"],
            train_s=values["perf/train_s"],
            weights_s=values["perf/weights_s"],
            eta_s=eta_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """One rank of the run, to tell who died."""

    name: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run at one moment."""

    name: str
    pid: int
    """Of the controller."""
    state: RunState
    completed: bool
    """Every step was taken; a run can also be finished by being asked to."""
    phase: str
    """What the step is waiting for, or why the run ended."""
    step: int
    """Steps taken."""
    num_steps: int
    accuracy: float | None
    """Latest on held-out prompts, whichever step it followed."""
    eta_s: Seconds | None
    rows: tuple[StepSummary, ...]
    """The latest steps, oldest first; as many as shall be shown."""
    ranks: tuple[RankProcess, ...]
    """Those that have said hello."""
    started_at: float
    updated_at: float
    """Unix seconds."""


def write_status(path: Path, status: Status) -> None:
    """Replace the status file; readers see the former or the given one."""
    with written_aside(path) as aside:
        aside.write_bytes(msgspec.json.encode(status))


def read_status(path: Path) -> Status | None:
    """Return the status, None when there is no file; raises RunDirError when the file is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise RunDirError(f"{path}: not a status file: {error}") from None


class StatusWriter:
    """Writes a status file at most four times a second, and whenever the state changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: tuple[Seconds, RunState] | None = None

    def write(self, status: Status, now: Seconds) -> bool:
        """Write the status unless that is too soon at `now` (monotonic); returns whether it was written.

        Call again while the run waits: a status that came too soon is not kept.
        """
        if self._written is not None:
            at, state = self._written
            if status.state == state and now < at + WRITE_EVERY_S:
                return False
        write_status(self._path, status)
        self._written = now, status.state
        return True
