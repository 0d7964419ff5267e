"""The proximal policy of decoupled objectives, and the weight that it demands (AReaL, section 5.2, equations 4 and 5).

    J = E[ w min(u A, clip(u, 1 - low, 1 + high) A) ],   u = pi / pi_prox,   w = pi_prox / pi_behave

The clip is around the trainer's weights before the batch; what is older is brought there by importance. The weight is
truncated (Ionides 2008, equation 3), which also bounds what engine and trainer make of the same weights differently
(truncated importance sampling). With `behaviour` it is PPO as it ever was: pi_prox = pi_behave, w = 1; with stale
samples that is AReaL's ablation without decoupling.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sestina.algorithms.tokens import PolicyTokens


def proximal_logprobs(
    logprobs: Float[Tensor, " t"], tokens: PolicyTokens, kind: Literal["behaviour", "recomputed", "loglinear"]
) -> Float[Tensor, " t"]:
    """Return log pi_prox of each token, without a gradient.

    `loglinear` (A-3PO, arXiv 2512.06547): on the line between behaviour (version v) and the policy in training, which
    is on its way to version i + 1: log pi_behave + (i - v) / (i + 1 - v) * (log pi - log pi_behave).
    """
    if kind == "behaviour":
        return tokens.sampled_logprobs
    if kind == "recomputed":
        assert tokens.proximal_logprobs is not None, "the proximal policy is recomputed before the batch"
        return tokens.proximal_logprobs
    if tokens.ages is None:
        return tokens.sampled_logprobs
    along = tokens.ages / (tokens.ages + 1)
    return tokens.sampled_logprobs + along * (logprobs.detach() - tokens.sampled_logprobs)


def behaviour_weights(proximal: Float[Tensor, " t"], tokens: PolicyTokens, cap: float) -> Float[Tensor, " t"]:
    """Return min(pi_prox / pi_behave, cap) of each token; 1 where the token does not count."""
    gap = torch.where(tokens.responses > 0, proximal - tokens.sampled_logprobs, 0)
    return gap.exp().clamp(max=cap)
