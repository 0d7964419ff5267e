"""What a user sets about the objective: the settings that all have, and those of each."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge

from sestina.core.ranges import Count, CountOrNone, NonNegative, Positive, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """What every objective has."""

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
    loss_mean: Literal["token", "sequence"]
    """`token`: mean over the batch's response tokens; `sequence`: mean over responses of each one's token mean."""
    kl_coefficient: NonNegative
    """Weight of the KL penalty to the initial model; 0 keeps no reference."""
    proximal: Literal["behaviour", "recomputed", "loglinear"]
    """The policy that the ratio is clipped around: the one that sampled, or the trainer's before the batch, computed or
    estimated."""
    behaviour_weight_cap: Annotated[float, Ge(1)]
    """Most that a token's weight pi_proximal / pi_behaviour comes to; without effect with `behaviour`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOConfig(ObjectiveConfig):
    """Group relative policy optimisation."""

    kind: Literal["grpo"]
    advantage_scale: Literal["std", "none"]
    """Whether a group's centred rewards are divided by their standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig(ObjectiveConfig):
    """Proximal policy optimisation without a critic, advantages normalised over the batch."""

    kind: Literal["ppo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RLOOConfig(ObjectiveConfig):
    """REINFORCE with a leave-one-out baseline."""

    kind: Literal["rloo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DAPOConfig(ObjectiveConfig):
    """Decoupled clip and dynamic sampling."""

    kind: Literal["dapo"]
    dynamic_sampling: bool
    """Whether groups whose rewards are all equal are replaced by others; run.mode async only."""
    overlong_tokens: CountOrNone
    """Last tokens before rollout.max_new_tokens over which the penalty on length grows; 0: none."""
    overlong_penalty: NonNegative
    """What a response at the limit loses of its reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GSPOConfig(ObjectiveConfig):
    """Group sequence policy optimisation: ratios and clips of whole responses."""

    kind: Literal["gspo"]
    advantage_scale: Literal["std", "none"]
    """Whether a group's centred rewards are divided by their standard deviation."""


AlgorithmConfig: TypeAlias = GRPOConfig | PPOConfig | RLOOConfig | DAPOConfig | GSPOConfig
