"""The rate of the model's matrix products: F_eff of the roofline (EfficientRollout; algorithms-and-numbers E-B)."""

from collections.abc import Iterator
from statistics import median

import torch

from sestina.core.units import Seconds
from sestina.models.shape import ModelShape
from sestina.rollout.meter import meter_for

ROWS = 256
"""Enough for products to be bound by arithmetic."""

REPEATS = 5


def products_of(shape: ModelShape) -> list[tuple[int, int, int]]:
    """Return inner width, outer width and number of every matrix product that a row goes through."""
    hidden, query, layers = shape.hidden_size, shape.num_heads * shape.head_size, shape.num_layers
    return [
        (hidden, shape.qkv_size, layers),
        (query, hidden, layers),
        (hidden, 2 * shape.ffn_size, layers),
        (shape.ffn_size, hidden, layers),
        (hidden, shape.vocab_size, 1),
    ]


def flops_of(shape: ModelShape) -> float:
    """Return the operations of one row: two for each weight."""
    return 2.0 * sum(inner * outer * count for inner, outer, count in products_of(shape))


def row_seconds(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> Seconds:
    """Return the time of one row's products within ROWS of them."""
    generator = torch.Generator().manual_seed(0)
    total_s = 0.0
    for inner, outer, count in products_of(shape):
        rows = torch.randn(ROWS, inner, generator=generator).to(device, dtype)
        weight = torch.randn(outer, inner, generator=generator).to(device, dtype).t()
        total_s += count * median(_times(rows, weight))
    return total_s / ROWS


def _times(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[Seconds]:
    meter = meter_for("cuda" if rows.is_cuda else "cpu")
    torch.mm(rows, weight)
    for _ in range(REPEATS):
        _wait(rows)
        began_s = meter()
        torch.mm(rows, weight)
        _wait(rows)
        yield meter() - began_s


def _wait(rows: torch.Tensor) -> None:
    if rows.is_cuda:
        torch.cuda.synchronize(rows.device)
