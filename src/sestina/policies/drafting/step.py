"""One engine step as draft policies see it: what runs, what was decided, what came of it.

A slot is a row of the engine's table of running requests; it is the same for as long as a request stays.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.core.units import Seconds

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

Reason: TypeAlias = Literal[
    "on", "probe", "control", "no-room", "no-length", "batch", "roofline", "ramp-up", "slower", "overdrawn"
]
"""Why a step speculates (`on`, `probe`) or does not (all others); metrics count them.

on         expected to pay
probe      not expected to, yet some requests draft so that the expectation stays measured; paid from the allowance
control    expected to pay, yet decoded plainly so that plain decoding stays measured
no-room    no request may take a draft token
no-length  the length policy gives every request a draft of 0
batch, roofline, ramp-up   the toggle of that name
slower     speculation is predicted to be no faster
overdrawn  speculation has recently lost more time than it may
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """The requests that the next step decodes, B of them."""

    slots: IntArray
    """[B], each once"""
    probes: BoolArray
    """[B]: the request is its group's speculative one (Seer, section 3.3)"""
    limits: IntArray
    """[B]: most draft tokens it can use: what the response, the chunk and the drafter allow"""
    kv_tokens: int
    """Tokens of context that all of them hold together."""
    arrears_s: Seconds = 0.0
    """What drafting begins with: telling the drafter of all that was said since it was last told."""

    @property
    def batch(self) -> int:
        """Return B."""
        return len(self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What the step is to do, and what that is expected to come to."""

    lengths: IntArray
    """[B]: tokens of the longest draft path of each request"""
    paths: int
    """Most paths of each draft; 1 is a linear draft."""
    reason: Reason
    plain_s: Seconds
    """Predicted time of a plain step."""
    expected_s: Seconds
    """Predicted time of the step as planned."""
    expected_tokens: float
    """Tokens that the step is predicted to produce, all requests together."""

    @property
    def speculate(self) -> bool:
        """Whether any request drafts."""
        return self.reason in ("on", "probe")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What the step did."""

    view: StepView
    plan: StepPlan
    drafted: IntArray
    """[B]: tokens of the longest path that the drafter offered; at most the plan's length"""
    accepted: IntArray
    """[B]: draft tokens accepted; the token sampled after them is not counted"""
    draft_tokens: int
    """Draft tokens verified, those of all paths together."""
    seconds: Seconds
    """Measured: drafting, forward pass, sampling. A step that also prefilled is not to be told."""
    rested: int = 0
    """Plain steps before it that nobody decided about."""
