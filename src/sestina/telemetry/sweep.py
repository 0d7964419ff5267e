"""One pass over what happens in a step, which adds up why instances do nothing (idle.py says what the causes mean)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sestina.core.units import InstanceId, Seconds

Cause: TypeAlias = Literal["last_request", "imbalance", "queueing", "recompute", "reward", "train", "weights", "rest"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
_AFTER_ROLLOUT: tuple[Cause, Cause, Cause] = ("train", "weights", "rest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one instant adds."""

    open: int = 0
    """Responses that are not finished."""
    placed: int = 0
    """Of these, those that an instance has."""
    instance: InstanceId | None = None
    """To which the others belong."""
    queued: int = 0
    running: int = 0
    """Chunks there, before and after they are first in a batch."""
    pace: float = 0.0
    again_pace: float = 0.0
    """Tokens per second, and those of them that were computed before."""


@dataclass(slots=True)
class _Instance:
    running: int = 0
    queued: int = 0
    pace: float = 0.0
    again_pace: float = 0.0
    since_s: Seconds = 0.0
    """When its paces last changed."""

    @property
    def waits(self) -> bool:
        return self.queued > 0 and not self.running


class Sweep:
    """Goes from instant to instant, from 0 on; `lost_s` has instance-seconds by cause. O(1) for each."""

    def __init__(self, num_instances: int, ends_s: Sequence[Seconds]) -> None:
        """`ends_s`: of the rollout, of training, of the weight update, of the step."""
        self.lost_s: dict[Cause, Seconds] = dict.fromkeys(CAUSES, 0.0)
        self._instances = [_Instance() for _ in range(num_instances)]
        self._ends_s = ends_s
        self._at_s: Seconds = 0.0
        self._open = self._placed = self._waiting = 0
        self._idle = num_instances

    def advance(self, to_s: Seconds) -> None:
        """Account for the time until an instant."""
        for phase, end_s in enumerate(self._ends_s):
            span_s = min(to_s, end_s) - self._at_s
            if span_s > 0:
                self._lose(phase, span_s)
                self._at_s = min(to_s, end_s)

    def take(self, change: Change) -> None:
        """Change the state at the instant that has been reached."""
        self._open += change.open
        self._placed += change.placed
        if change.instance is None:
            return
        instance = self._instances[change.instance]
        self._waiting -= instance.waits
        self._idle -= not instance.running
        if change.running:
            self._settle(instance)
        instance.queued += change.queued
        instance.running += change.running
        instance.pace = instance.pace + change.pace if instance.running else 0.0  # no rounding is carried on
        instance.again_pace = instance.again_pace + change.again_pace if instance.running else 0.0
        self._waiting += instance.waits
        self._idle += not instance.running

    def _settle(self, instance: _Instance) -> None:
        if instance.running and instance.pace > 0:
            share = min(1.0, max(0.0, instance.again_pace / instance.pace))
            self.lost_s["recompute"] += (self._at_s - instance.since_s) * share
        instance.since_s = self._at_s

    def _lose(self, phase: int, span_s: Seconds) -> None:
        idle_s = self._idle * span_s
        if phase:
            self.lost_s[_AFTER_ROLLOUT[phase - 1]] += idle_s
        elif self._open <= 1:
            self.lost_s["last_request" if self._open else "reward"] += idle_s
        elif self._open > self._placed:
            self.lost_s["queueing"] += idle_s
        else:
            waiting_s = self._waiting * span_s
            self.lost_s["queueing"] += waiting_s
            self.lost_s["imbalance"] += idle_s - waiting_s
