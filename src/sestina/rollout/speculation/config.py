"""What a user sets about drafting."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sestina.core.ranges import Count, NonNegative

Source = Literal["none", "self", "grouped", "history", "grouped+history", "quantized"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """Speculative decoding. None of it but `acceptance` changes a token; all of it changes how long tokens take."""

    source: Source
    """Where drafts come from.

    `none`, `self` (the response and its prompt), `grouped` (all responses to the prompt), `history` (those of the last
    epoch), `grouped+history` (of both the longer match), `quantized` (the model itself on rounded weights).
    """
    length: Literal["fixed", "thresholds", "mba", "aimd", "ladder"]
    """How many tokens are drafted (Seer v1 and v3, RhymeRL, EfficientRollout)."""
    toggle: Literal["always", "roofline", "batch"]
    """Whether a step drafts at all."""
    guard: bool
    """Measure plain steps too, and never lose more than half a hundredth of the time that decoding plainly takes."""
    max_tokens: Annotated[int, Ge(1), Le(64)]
    """Most tokens of one draft."""
    paths: Count
    """Most alternatives in one draft; more than 1 makes it a tree."""
    min_token_prob: Annotated[float, Ge(0), Le(1)]
    """A draft ends where its next token is estimated to be less likely, given what precedes it."""
    thresholds_slack: NonNegative = 0.1
    """Length `thresholds`: how much longer than a plain step, as a share of it, a step with drafts may take."""
    aimd_start: Annotated[int, Ge(1), Le(64)] = 2
    """Length `aimd`: tokens that a response drafts at first, and after a rejection."""
    aimd_step: Count = 2
    """Length `aimd`: tokens more after a draft that was accepted whole."""
    history_bytes: Count = 4 << 30
    """Memory of the controller for histories; beyond it they lie on the disk."""
    servers: Annotated[int, Ge(0), Le(64)] = 0
    """Draft servers, which bring what an instance's responses say to the drafts of the others; 0: each has its own."""
    bits: Literal[4, 8] = 4
    """Of the rounded weights of the source `quantized`."""
    weight_group: Literal[32, 64, 128, 256] = 128
    """Consecutive inputs that share a scale; 8 bits take a product for each group."""
    acceptance: Literal["coupled", "rejection"] = "coupled"
    """Of drafts by a model: as long as it draws what the model draws with the same noise, which changes no token; or by
    rejection sampling, which changes tokens and not their distribution, and accepts more."""
    calibration: Path | None = None
    """What launch/calibrate.py wrote of this engine; None: engines take a short measurement when they start."""
