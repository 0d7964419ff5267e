"""The loss of a batch under any configured objective, and what is logged of it. T tokens.

proximal policy -> ratios, of tokens or responses -> clip -> behaviour weights -> KL penalty -> weighted sum
"""

import torch
from jaxtyping import Float
from torch import Tensor

from sestina.algorithms.config import AlgorithmConfig, GSPOConfig
from sestina.algorithms.gspo import sequence_log_ratios
from sestina.algorithms.kl import k3
from sestina.algorithms.ppo import clipped_losses
from sestina.algorithms.proximal import behaviour_weights, proximal_logprobs
from sestina.algorithms.tokens import PolicyTokens, Sums


def policy_loss(
    logprobs: Float[Tensor, " t"], entropy: Float[Tensor, " t"], tokens: PolicyTokens, config: AlgorithmConfig
) -> tuple[Float[Tensor, ""], Sums]:
    """Return the weighted sum of token losses, and metric sums over response tokens."""
    response = tokens.responses
    proximal = proximal_logprobs(logprobs, tokens, config.proximal)
    log_ratios = torch.where(response > 0, logprobs - proximal, 0)
    if isinstance(config, GSPOConfig):
        log_ratios = sequence_log_ratios(log_ratios, tokens)
    losses, clipped = clipped_losses(log_ratios.exp(), tokens.advantages, config.clip_low, config.clip_high)
    weights = behaviour_weights(proximal, tokens, config.behaviour_weight_cap)
    losses = losses * weights
    behaviour_gap = torch.where(response > 0, logprobs.detach() - tokens.sampled_logprobs, 0)
    sums = {
        "pg_loss": (losses.detach() * tokens.weights).sum(),
        "pg_clipfrac": (clipped * response).sum(),
        "ppo_kl": (-log_ratios.detach() * response).sum(),
        "entropy": (entropy.detach() * response).sum(),
        "train_rollout_logprob_abs_diff": (behaviour_gap.abs() * tokens.fresh).sum(),
        "fresh_token_ratio": tokens.fresh.sum(),
        "response_tokens": response.sum(),
    }
    if config.proximal != "behaviour":
        sums["behaviour_weight"] = (weights * response).sum()
        sums["behaviour_weight_capped"] = ((weights >= config.behaviour_weight_cap) * response).sum()
    if tokens.reference_logprobs is not None:
        penalty = k3(torch.where(response > 0, tokens.reference_logprobs - logprobs, 0))
        losses = losses + config.kl_coefficient * penalty
        sums["kl_to_reference"] = (penalty.detach() * response).sum()
    return (losses * tokens.weights).sum(), sums
