"""The process group of one trainer rank (its rank 0) and all rollout ranks; apart from torch's default group."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sestina.core.errors import WeightsError
from sestina.core.units import Seconds


class UpdateGroup:
    """Broadcasts tensors from rank 0, each within a time limit.

    Joining blocks until every rank has joined; raises WeightsError after `limit_s`.
    """

    def __init__(
        self, store: dist.Store, *, rank: int, world_size: int, device: torch.device, limit_s: Seconds
    ) -> None:
        self.device = device
        self._limit_s = limit_s
        own = dist.PrefixStore("weights", store)
        timeout = timedelta(seconds=limit_s)
        backend = _nccl if device.type == "cuda" else dist.ProcessGroupGloo
        try:
            self._group: Any = backend(own, rank, world_size, timeout)  # torch's stubs lack its methods
        except RuntimeError as error:
            raise WeightsError(f"not all {world_size} ranks joined the weight-update group: {error}") from None

    def broadcast(self, tensor: torch.Tensor, what: str) -> None:
        """Send (rank 0) or overwrite (others) a contiguous tensor; raises WeightsError naming `what` if it is late."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        try:
            self._group.broadcast([tensor], options).wait(timedelta(seconds=self._limit_s))
        except RuntimeError as error:
            raise WeightsError(f"{what} did not get through within {self._limit_s:g} s: {error}") from None


def _nccl(store: dist.Store, rank: int, world_size: int, timeout: timedelta) -> "dist.ProcessGroupNCCL":
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, world_size, options)
