"""Matrix products by rounded weights.

The packed ones read 4 or 8 bits per weight with PyTorch's kernels, in bfloat16 whatever the model has; those that
compute in float32 take longer than float32 weights do. Symbols: R rows, N outputs, K inputs, G groups of inputs.
"""

from typing import Protocol

import torch
from torch import Tensor

from sestina.rollout.products import Dense, Product
from sestina.rollout.quantized.rounding import Bits, round_to_nearest

_aten = torch.ops.aten

INNER_TILES = 8
"""Of the layout of packed weights on CUDA, where each tile is 16 inputs; CPUs have none."""


class Quantized(Product, Protocol):
    """By weights that are rounded from those of a `Dense`."""

    def renew(self) -> None:
        """Round the source's weights, which are others by now, into the buffers that are there."""
        ...


class WrittenOut:
    """Implements `Quantized` on any device: the rounded weights in the model's own type. Saves nothing.

    Multiplies after the first `renew` only: a drafter is built before its model has weights.
    """

    def __init__(self, source: Dense, bits: Bits, group: int) -> None:
        self._source, self._group = source, group
        self._bits: Bits = bits
        self._product = Dense(torch.empty_like(source.weight), source.bias)

    def renew(self) -> None:
        """See `Quantized.renew`."""
        rounded = round_to_nearest(self._source.weight.t(), self._bits, self._group)
        self._product.weight.copy_(rounded.weights().t())

    def __call__(self, rows: Tensor, out: Tensor) -> None:
        """See `Product`."""
        self._product(rows, out)


class Packed4:
    """Implements `Quantized` with PyTorch's kernels for 4 bits."""

    def __init__(self, source: Dense, group: int) -> None:
        self._source, self._group = source, group
        self._weights, self._scales = self._pack()
        on_cpu = source.weight.device.type == "cpu"
        self._multiply = _aten._weight_int4pack_mm_for_cpu if on_cpu else _aten._weight_int4pack_mm

    def renew(self) -> None:
        """See `Quantized.renew`."""
        weights, scales = self._pack()
        self._weights.copy_(weights)
        self._scales.copy_(scales)

    def __call__(self, rows: Tensor, out: Tensor) -> None:
        """See `Product`."""
        out.copy_(self._multiply(rows.bfloat16(), self._weights, self._group, self._scales))
        if self._source.bias is not None:
            out.add_(self._source.bias)

    def _pack(self) -> tuple[Tensor, Tensor]:
        """Return the weights in the device's own layout, and scales and zero points [G, N, 2]."""
        rounded = round_to_nearest(self._source.weight.t(), 4, self._group)
        codes = rounded.codes.int() + 8
        scales = torch.stack([rounded.scales.t(), rounded.zeros.t()], dim=2).contiguous()
        if codes.device.type == "cpu":
            return _aten._convert_weight_to_int4pack_for_cpu(codes, INNER_TILES), scales
        pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
        return _aten._convert_weight_to_int4pack(pairs, INNER_TILES), scales


class Packed8:
    """Implements `Quantized` with PyTorch's kernel for 8 bits, whose scales are one per output: a call per group."""

    def __init__(self, source: Dense, group: int) -> None:
        self._source, self._group = source, group
        self._weights, self._scales = self._pack()

    def renew(self) -> None:
        """See `Quantized.renew`."""
        weights, scales = self._pack()
        self._weights.copy_(weights)
        self._scales.copy_(scales)

    def __call__(self, rows: Tensor, out: Tensor) -> None:
        """See `Product`."""
        parts = rows.bfloat16().split(self._group, dim=1)
        out.zero_() if self._source.bias is None else out.copy_(self._source.bias.expand_as(out))
        for part, weights, scales in zip(parts, self._weights, self._scales, strict=True):
            out.add_(_aten._weight_int8pack_mm(part, weights, scales))

    def _pack(self) -> tuple[Tensor, Tensor]:
        """Return [G, N, group] int8 and [G, N] bfloat16."""
        rounded = round_to_nearest(self._source.weight.t(), 8, self._group)
        groups = rounded.codes.unflatten(1, (-1, self._group)).transpose(0, 1)
        return groups.contiguous(), rounded.scales.t().contiguous()
