"""The matrix products of a layer, by its weights as they are or by another form of them."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Product(Protocol):
    """One of a layer's four products. Symbols: R rows, K and N what goes into and comes out of it."""

    def __call__(self, rows: Tensor, out: Tensor) -> None:
        """out[R, N] = rows[R, K] by the weights, plus the bias if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class Dense:
    """By the weights as they are."""

    weight: Tensor
    """[K, N], a view of what is stored [N, K]"""
    bias: Tensor | None = None

    def __call__(self, rows: Tensor, out: Tensor) -> None:
        """See `Product`."""
        if self.bias is None:
            torch.mm(rows, self.weight, out=out)
        else:
            torch.addmm(self.bias, rows, self.weight, out=out)
