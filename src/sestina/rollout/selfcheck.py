"""Whether this machine's arithmetic lets a token depend on its neighbours in the batch: checked, not assumed."""

import torch
from torch import Tensor

from sestina.models.shape import ModelShape
from sestina.rollout.qwen2 import MIN_GEMM_ROWS

SIZES = (MIN_GEMM_ROWS, MIN_GEMM_ROWS + 1, 7, 16, 33, 64, 100, 128, 200, 256, 500, 512, 1000)
"""Row counts on both sides of the blockings that BLAS libraries use; those the engine can run are tried."""


def gemm_is_batch_invariant(
    shape: ModelShape, device: torch.device, dtype: torch.dtype, *, max_step_tokens: int
) -> bool:
    """Return whether the model's matrix products gave a row the same bits in every batch that was tried."""
    hidden = shape.hidden_size
    products = {
        (hidden, shape.qkv_size),
        (shape.num_heads * shape.head_size, hidden),
        (hidden, 2 * shape.ffn_size),
        (shape.ffn_size, hidden),
        (hidden, shape.vocab_size),
    }
    generator = torch.Generator().manual_seed(0)
    largest = max(max_step_tokens, MIN_GEMM_ROWS)
    for inner, outer in sorted(products):
        rows = torch.randn(largest, inner, generator=generator).to(device, dtype)
        weight = torch.randn(outer, inner, generator=generator).to(device, dtype).T
        bias = torch.randn(outer, generator=generator).to(device, dtype)
        if not _rows_agree(rows, weight, bias):
            return False
    return True


def _rows_agree(rows: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Compare batches of every size, from the first row on and up to the last, with the largest batch."""
    plain, biased = torch.mm(rows, weight), torch.addmm(bias, rows, weight)
    for size in (n for n in SIZES if n <= len(rows)):
        for part in (slice(0, size), slice(len(rows) - size, len(rows))):
            if not torch.equal(torch.mm(rows[part], weight), plain[part]):
                return False
            if not torch.equal(torch.addmm(bias, rows[part], weight), biased[part]):
                return False
    return True
