"""The noise of core.noise in PyTorch, on any device."""

import torch
from torch import Tensor

from sestina.core.noise import GOLDEN, mix


def exponentials(keys: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Return [S, V] float64 standard exponentials, as `core.noise.exponentials` row by row."""
    golden = _signed(GOLDEN)
    rows = _mix(keys + (positions.long() + 1) * golden)
    counters = torch.arange(1, vocab + 1, device=keys.device) * golden
    bits = _shift(_mix(rows[:, None] + counters), 11)
    return -torch.log((bits.double() + 0.5) * 2.0**-53)


def apart(keys: Tensor, purpose: int) -> Tensor:
    """Return keys [S] whose noise has nothing to do with that of `keys`, another one for each purpose from 1 on."""
    return keys ^ _signed(mix(purpose))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift; PyTorch's is arithmetic."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """`core.noise.mix` in wrapping 64-bit arithmetic."""
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shift(z, 31)
