"""What a user sets about drafting."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sestina.core.ranges import Count

Source = Literal["none", "self", "grouped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """Speculative decoding. None of it changes a token; all of it changes how long tokens take."""

    source: Source
    """Where drafts come from: nowhere, the response itself and its prompt, or all responses to the prompt."""
    length: Literal["fixed", "mba", "aimd", "ladder"]
    """How many tokens are drafted (Seer, RhymeRL, EfficientRollout)."""
    toggle: Literal["always", "roofline", "batch"]
    """Whether a step drafts at all."""
    guard: bool
    """Measure plain steps too, and never lose more than a hundredth of the time that decoding plainly takes."""
    max_tokens: Annotated[int, Ge(1), Le(64)]
    """Most tokens of one draft."""
    paths: Count
    """Most alternatives in one draft; more than 1 makes it a tree."""
    min_token_prob: Annotated[float, Ge(0), Le(1)]
    """A draft ends where its next token is estimated to be less likely, given what precedes it."""
    calibration: Path | None = None
    """What launch/calibrate.py wrote of this engine; None: engines take a short measurement when they start."""
