"""The clipped policy objective of GRPO, over packed tokens. T tokens, those of responses with a weight above 0."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sestina.algorithms.config import GRPOConfig

Sums = dict[str, Tensor]
"""Scalars to be added over micro-batches and ranks, then divided by the number of response tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """What the objective needs to know of each token, next to the trained model's logprobs."""

    weights: Float[Tensor, " t"]
    """Share of the token in the loss; 0 for prompts and samples that do not count."""
    advantages: Float[Tensor, " t"]
    sampled_logprobs: Float[Tensor, " t"]
    """As the rollout drew them: the behaviour policy."""
    reference_logprobs: Float[Tensor, " t"] | None
    """Under the initial model; None without a KL penalty."""


def policy_loss(
    logprobs: Float[Tensor, " t"], entropy: Float[Tensor, " t"], tokens: PolicyTokens, config: GRPOConfig
) -> tuple[Float[Tensor, ""], Sums]:
    """Return the weighted sum of token losses, and metric sums over response tokens.

    Token loss: -min(r A, clip(r, 1 - low, 1 + high) A) with r = pi / pi_sampled, plus the KL penalty's k3 estimate
    exp(d) - d - 1 with d = log pi_ref - log pi (GRPO, equations 3 and 4).
    """
    response = (tokens.weights > 0).to(logprobs.dtype)
    log_ratio = torch.where(response > 0, logprobs - tokens.sampled_logprobs, 0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    plain, bounded = ratio * tokens.advantages, clipped * tokens.advantages
    losses = -torch.minimum(plain, bounded)
    sums = {
        "pg_loss": (losses.detach() * tokens.weights).sum(),
        "pg_clipfrac": ((bounded < plain) * response).sum(),
        "ppo_kl": (-log_ratio.detach() * response).sum(),
        "entropy": (entropy.detach() * response).sum(),
        "train_rollout_logprob_abs_diff": (log_ratio.detach().abs() * response).sum(),
        "response_tokens": response.sum(),
    }
    if tokens.reference_logprobs is not None:
        gap = torch.where(response > 0, tokens.reference_logprobs - logprobs, 0)
        penalty = gap.exp() - gap - 1
        losses = losses + config.kl_coefficient * penalty
        sums["kl_to_reference"] = (penalty.detach() * response).sum()
    return (losses * tokens.weights).sum(), sums
