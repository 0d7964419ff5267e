"""The initial policy, kept beside the trained one for the KL penalty."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Reference:
    """A copy of a model's parameters in host memory, to be lent to the model for forward passes."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = list(model.parameters())
        self._initial = [parameter.detach().to("cpu", copy=True) for parameter in self._parameters]

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Put the initial weights into the model, and the trained ones back at the end; no gradients meanwhile."""
        trained = [parameter.detach().to("cpu", copy=True) for parameter in self._parameters]
        self._put(self._initial)
        try:
            yield
        finally:
            self._put(trained)

    def _put(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.data.copy_(value)
