"""The clipped surrogate of PPO, token by token (Schulman et al. 2017, arXiv 1707.06347, equation 7)."""

import torch
from jaxtyping import Float
from torch import Tensor


def clipped_losses(
    ratios: Float[Tensor, " t"], advantages: Float[Tensor, " t"], low: float, high: float
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """Return -min(r A, clip(r, 1 - low, 1 + high) A), and 1 where the clip took the gradient away, else 0."""
    plain, bounded = ratios * advantages, ratios.clamp(1 - low, 1 + high) * advantages
    return -torch.minimum(plain, bounded), (bounded < plain).to(ratios.dtype)
