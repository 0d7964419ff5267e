"""Round-to-nearest in groups of consecutive inputs (EfficientRollout, section 4: asymmetric uint4, group 128).

4 bits span a group's least to largest weight; 8 bits lie symmetrically around 0. N outputs, K inputs, G groups.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

Bits: TypeAlias = Literal[4, 8]

_LEAST_SCALE = 1e-30
"""Of a group whose weights are all equal; no quotient becomes infinite."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """Weights as small integers: code * scale + zero."""

    codes: Tensor
    """[N, K] int8: -8 to 7, or -127 to 127"""
    scales: Tensor
    """[N, G] bfloat16, which PyTorch's packed kernels take"""
    zeros: Tensor
    """[N, G] bfloat16"""

    def weights(self) -> Tensor:
        """Return [N, K] float32."""
        groups = self.codes.unflatten(1, (self.scales.shape[1], -1)).float()
        return (groups * self.scales.float()[..., None] + self.zeros.float()[..., None]).flatten(1)


def round_to_nearest(weights: Tensor, bits: Bits, group: int) -> Rounded:
    """Round weights [N, K] in groups of `group` inputs, which divides K."""
    groups = weights.float().unflatten(1, (-1, group))
    return {4: _asymmetric, 8: _symmetric}[bits](groups)


def _asymmetric(groups: Tensor) -> Rounded:
    least, largest = groups.aminmax(dim=2)
    scales = _scales((largest - least) / 15)
    return _nearest(groups, scales, (least + 8 * scales.float()).bfloat16(), -8, 7)


def _symmetric(groups: Tensor) -> Rounded:
    scales = _scales(groups.abs().amax(2) / 127)
    return _nearest(groups, scales, torch.zeros_like(scales), -127, 127)


def _nearest(groups: Tensor, scales: Tensor, zeros: Tensor, least: int, largest: int) -> Rounded:
    codes = (groups - zeros.float()[..., None]) / scales.float()[..., None]
    return Rounded(codes.round().clamp(least, largest).flatten(1).to(torch.int8), scales, zeros)


def _scales(scales: Tensor) -> Tensor:
    return scales.clamp(min=_LEAST_SCALE).bfloat16()
