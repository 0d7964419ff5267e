"""Rotary position embedding tables."""

import torch
from torch import Tensor

from sestina.models.shape import ModelShape


def cos_sin_table(shape: ModelShape, max_positions: int) -> Tensor:
    """Return [max_positions, D] float32: D/2 cosines then D/2 sines of each position's angles."""
    exponents = torch.arange(0, shape.head_size, 2, dtype=torch.float32) / shape.head_size
    angles = torch.arange(max_positions, dtype=torch.float32)[:, None] / shape.rope_theta**exponents
    return torch.cat([angles.cos(), angles.sin()], dim=1).contiguous()
