"""Whether this machine's arithmetic lets a token depend on its neighbours in the batch: checked, not assumed."""

import torch

from sestina.models.shape import ModelShape
from sestina.rollout.qwen2 import MIN_GEMM_ROWS

BATCHES = (MIN_GEMM_ROWS, MIN_GEMM_ROWS + 1, 7, 16, 33)
"""Row counts on both sides of the blockings that BLAS libraries use."""


def gemm_is_batch_invariant(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether every matrix product of the model gives a row the same bits in any batch the engine runs."""
    hidden = shape.hidden_size
    products = {
        (hidden, shape.qkv_size),
        (shape.num_heads * shape.head_size, hidden),
        (hidden, 2 * shape.ffn_size),
        (shape.ffn_size, hidden),
        (hidden, shape.vocab_size),
    }
    generator = torch.Generator().manual_seed(0)
    return all(_rows_agree(*product, generator, device, dtype) for product in sorted(products))


def _rows_agree(inner: int, outer: int, generator: torch.Generator, device: torch.device, dtype: torch.dtype) -> bool:
    rows = torch.randn(64, inner, generator=generator).to(device, dtype)
    weight = torch.randn(outer, inner, generator=generator).to(device, dtype).T
    whole = torch.mm(rows, weight)
    return all(torch.equal(torch.mm(rows[:n], weight), whole[:n]) for n in BATCHES)
