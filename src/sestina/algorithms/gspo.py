"""Ratios of whole responses (GSPO: Zheng et al. 2025, arXiv 2507.18071, equations 7 and 14).

    s = (pi(y) / pi_prox(y)) ** (1 / |y|)

As in the paper's token variant, a token's ratio has the value of s and the gradient of its own logprob. With one
advantage per response that is the gradient of the sequence objective.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from sestina.algorithms.tokens import PolicyTokens


def sequence_log_ratios(log_ratios: Float[Tensor, " t"], tokens: PolicyTokens) -> Float[Tensor, " t"]:
    """Return log s of each token's response; `log_ratios` are 0 where tokens do not count."""
    assert tokens.sequences is not None, "whole responses need to know which tokens belong together"
    index = tokens.sequences.long()
    empty = torch.zeros(int(index.max()) + 1, dtype=log_ratios.dtype, device=log_ratios.device)
    lengths = empty.index_add(0, index, tokens.responses.to(log_ratios.dtype)).clamp(min=1)
    means = empty.index_add(0, index, log_ratios.detach()) / lengths
    return tokens.responses * means[index] + log_ratios - log_ratios.detach()
