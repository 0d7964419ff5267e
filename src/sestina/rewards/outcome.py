"""What scoring one response came to, or asking an environment about one."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.errors import RunError
from sestina.core.seconds import Seconds

Kind: TypeAlias = Literal["ok", "raised", "timeout", "died"]
"""The rule gave a number; it raised; it took too long; it took its process down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a rule that has more to say than a number says."""

    reward: float
    reason: str | None
    notes: tuple[str, ...] = ()
    """Names that are counted in the metrics; a few different ones, none of them made of the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A reward, or why there is none."""

    reward: float
    """NaN unless `kind` is "ok"; an environment's is NaN."""
    kind: Kind
    error: str | None
    """Why there is no reward; where there is one, its reason, or None when the rule gives none."""
    traceback: str | None = None
    """Last lines of it, when `kind` is "raised"."""
    elapsed_s: Seconds
    notes: tuple[str, ...] = ()
    """As in `Verdict`."""
    text: str | None = None
    """What an environment answered; None in the outcome of a reward, and where it failed."""


def failed(
    kind: Kind, error: str, elapsed_s: Seconds, traceback: str | None = None, notes: tuple[str, ...] = ()
) -> Outcome:
    """Return the outcome of a sample without a reward."""
    return Outcome(reward=math.nan, kind=kind, error=error, traceback=traceback, elapsed_s=elapsed_s, notes=notes)


class RewardError(RunError):
    """Reward workers cannot be started, or answer out of turn, or a service takes no further call.

    One response that fails is an Outcome instead.
    """
