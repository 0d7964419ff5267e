"""Advantages as the configured objective has them."""

from typing import assert_never

from jaxtyping import Float, Int
from torch import Tensor

from sestina.algorithms.advantages import (
    Advantages,
    batch_advantages,
    group_advantages,
    leave_one_out_advantages,
)
from sestina.algorithms.config import AlgorithmConfig, DAPOConfig, GRPOConfig, GSPOConfig, PPOConfig, RLOOConfig
from sestina.algorithms.dapo import overlong_penalties


def advantages(
    config: AlgorithmConfig,
    *,
    rewards: Float[Tensor, " n"],
    groups: Int[Tensor, " n"],
    lengths: Int[Tensor, " n"],
    drawn: Int[Tensor, " n"],
    max_tokens: int,
) -> Advantages:
    """Return the advantages of N samples.

    `lengths` are those of their responses, which may have `max_tokens`; of these tokens the model drew `drawn`.
    """
    match config:
        case GRPOConfig() | GSPOConfig():
            return group_advantages(rewards, groups, config.advantage_scale)
        case PPOConfig():
            return batch_advantages(rewards, groups, drawn)
        case RLOOConfig():
            return leave_one_out_advantages(rewards, groups)
        case DAPOConfig():
            margin, penalty = config.overlong_tokens, config.overlong_penalty
            lost = overlong_penalties(lengths, max_tokens=max_tokens, margin_tokens=margin, penalty=penalty)
            return group_advantages(rewards - lost, groups, "std")
        case _:
            assert_never(config)
