"""What a user sets about drafting."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sestina.core.ranges import Count

Source = Literal["none", "self", "grouped", "quantized"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """Speculative decoding. None of it but `acceptance` changes a token; all of it changes how long tokens take."""

    source: Source
    """Where drafts come from: nowhere, the response itself and its prompt, all responses to the prompt, or the model
    itself on rounded weights."""
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
    bits: Literal[4, 8] = 4
    """Of the rounded weights of the source `quantized`."""
    weight_group: Literal[32, 64, 128, 256] = 128
    """Consecutive inputs that share a scale; 8 bits take a product for each group."""
    acceptance: Literal["coupled", "rejection"] = "coupled"
    """Of drafts by a model: as long as it draws what the model draws with the same noise, which changes no token; or by
    rejection sampling, which changes tokens and not their distribution, and accepts more."""
