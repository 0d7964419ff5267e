"""Draft policies out of a configuration."""

from sestina.policies.drafting.aimd import AimdLengths
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.guard import GuardSettings
from sestina.policies.drafting.ladder import LadderLengths
from sestina.policies.drafting.lengths import FixedLength, LengthPolicy
from sestina.policies.drafting.mba import MbaLengths
from sestina.policies.drafting.policy import DraftPolicy
from sestina.policies.drafting.thresholds import ThresholdLengths, thresholds_of
from sestina.policies.drafting.toggles import Always, BatchToggle, RooflineToggle, Toggle, batch_limits_of
from sestina.rollout.speculation.config import DraftConfig

ACCEPTANCES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the rows of a batch table (RhymeRL, section 4.2)."""

SEQUENCE_TOKENS = 256
"""Context for which tables by batch are made."""


def build_policy(config: DraftConfig, cost: StepCost, num_slots: int) -> DraftPolicy:
    """Return the policy of one engine, whose steps take `cost`."""
    return DraftPolicy(
        _lengths(config, cost, num_slots),
        _toggle(config, cost, num_slots),
        cost=cost,
        max_length=config.max_tokens,
        paths=config.paths,
        guard=GuardSettings() if config.guard else None,
    )


def _lengths(config: DraftConfig, cost: StepCost, num_slots: int) -> LengthPolicy:
    match config.length:
        case "fixed":
            return FixedLength(config.max_tokens)
        case "thresholds":
            batches = tuple(range(1, num_slots + 1))
            slack = config.thresholds_slack
            table = thresholds_of(cost, batches=batches, sequence_tokens=SEQUENCE_TOKENS, slack=slack)
            return ThresholdLengths(table, max_length=config.max_tokens, max_paths=config.paths)
        case "mba":
            return MbaLengths(mode="per_cost", max_length=config.max_tokens)
        case "aimd":
            return AimdLengths(
                num_slots=num_slots, start=config.aimd_start, step=config.aimd_step, max_length=config.max_tokens
            )
        case "ladder":
            return LadderLengths()


def _toggle(config: DraftConfig, cost: StepCost, num_slots: int) -> Toggle:
    match config.toggle:
        case "always":
            return Always()
        case "roofline":
            return RooflineToggle(ramp_up=min(32, num_slots // 2))
        case "batch":
            length = min(8, config.max_tokens)
            return BatchToggle(
                batch_limits_of(
                    cost, length=length, sequence_tokens=SEQUENCE_TOKENS, acceptances=ACCEPTANCES, most=num_slots
                )
            )
