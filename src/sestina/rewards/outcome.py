"""What scoring one response came to."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.errors import RunError
from sestina.core.units import Seconds

Kind: TypeAlias = Literal["ok", "raised", "timeout", "died"]
"""The rule gave a number; it raised; it took too long; it took its process down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A reward, or why there is none."""

    reward: float
    """NaN unless `kind` is "ok"."""
    kind: Kind
    error: str | None
    """None when `kind` is "ok"."""
    traceback: str | None = None
    """Last lines of it, when `kind` is "raised"."""
    elapsed_s: Seconds


class RewardError(RunError):
    """Reward workers cannot be started, or answer out of turn; one response that fails is an Outcome instead."""
