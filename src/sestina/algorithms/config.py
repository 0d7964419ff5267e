"""What a user sets about the objective."""

from dataclasses import dataclass
from typing import Literal

from sestina.core.ranges import Count, NonNegative, Positive, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOConfig:
    """Group relative policy optimisation."""

    kind: Literal["grpo"]
    batch_size: Count
    """Responses per step; a multiple of `group_size`."""
    group_size: Count
    """Responses per prompt."""
    minibatches: Count
    """Optimizer steps per batch, each on an equal share of its groups."""
    clip_low: Share
    """The probability ratio is clipped from below at 1 - clip_low."""
    clip_high: Positive
    """And from above at 1 + clip_high."""
    advantage_scale: Literal["std", "none"]
    """Whether a group's centred rewards are divided by their standard deviation."""
    loss_mean: Literal["token", "sequence"]
    """`token`: mean over the batch's response tokens; `sequence`: mean over responses of each one's token mean."""
    kl_coefficient: NonNegative
    """Weight of the KL penalty to the initial model; 0 keeps no reference."""


AlgorithmConfig = GRPOConfig
