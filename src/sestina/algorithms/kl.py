"""Estimates of the divergence from a reference policy."""

from jaxtyping import Float
from torch import Tensor


def k3(gaps: Float[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return exp(d) - d - 1 with d = log pi_ref - log pi: unbiased and never negative (GRPO, equation 4)."""
    return gaps.exp() - gaps - 1
