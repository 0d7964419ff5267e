"""Which product by rounded weights this device is faster with: measured on one layer, not assumed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import torch
from torch import Tensor

from sestina.core.units import Seconds
from sestina.rollout.products import Dense, Product
from sestina.rollout.quantized.products import Packed4, Packed8, Quantized, WrittenOut
from sestina.rollout.quantized.rounding import Bits

Build: TypeAlias = Callable[[Dense], Quantized]

ROWS = 4
"""Of the products that are timed: the tail of a rollout, where drafts pay."""

REPEATS = 15
CLOSE = 0.02
"""Most that packed products may differ from written-out ones, as a share of the largest; bfloat16 rounds to 0.004."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a drafter multiplies."""

    build: Build
    name: str
    """For people: the kernel, and why it was chosen."""


@torch.inference_mode()
def choose(layer: Sequence[Dense], bits: Bits, group: int) -> Choice:
    """Hold PyTorch's packed kernel against the model's own products of one layer's sizes, on random weights."""

    def written_out(source: Dense) -> Quantized:
        return WrittenOut(source, bits, group)

    def packed(source: Dense) -> Quantized:
        return {4: Packed4, 8: Packed8}[bits](source, group)

    own = [Dense(torch.randn_like(product.weight), product.bias) for product in layer]
    try:
        candidates = [packed(product) for product in own]
        found = _multiply(candidates, _operands(own))
    except (RuntimeError, NotImplementedError) as error:  # kernels differ in the sizes and devices that they take
        return Choice(written_out, f"{bits} bits, written out: no packed kernel ({str(error).splitlines()[0]})")
    expected = [written_out(product) for product in own]
    for product in expected:
        product.renew()
    if not _close(found, _multiply(expected, _operands(own))):
        return Choice(written_out, f"{bits} bits, written out: the packed kernel's products are wrong")
    gain = _seconds(own, own) / _seconds(candidates, own)
    if gain > 1:
        return Choice(packed, f"{bits} bits, packed: {gain:.2f} times as fast as the model's products")
    return Choice(written_out, f"{bits} bits, written out: packed products are {gain:.2f} times as fast as the model's")


Operands: TypeAlias = Sequence[tuple[Tensor, Tensor]]


def _operands(layer: Sequence[Dense]) -> Operands:
    """Return rows and room for their product, the rows the same at every call."""
    made: list[tuple[Tensor, Tensor]] = []
    for weight in (product.weight for product in layer):
        ramp = torch.arange(ROWS * weight.shape[0], device=weight.device).view(ROWS, -1)
        made.append((ramp.sin().to(weight.dtype), weight.new_empty(ROWS, weight.shape[1])))
    return made


def _multiply(products: Sequence[Product], operands: Operands) -> list[Tensor]:
    for product, (rows, out) in zip(products, operands, strict=True):
        product(rows, out)
    return [out.float().cpu() for _, out in operands]  # which waits for the device


def _close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all((a - b).abs().max() <= CLOSE * b.abs().max() for a, b in zip(found, expected, strict=True))


def _seconds(products: Sequence[Product], layer: Sequence[Dense]) -> Seconds:
    operands = _operands(layer)
    return median(_timed(products, operands) for _ in range(REPEATS))


def _timed(products: Sequence[Product], operands: Operands) -> Seconds:
    began_s = time.perf_counter()
    _multiply(products, operands)
    return time.perf_counter() - began_s
