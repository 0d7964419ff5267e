"""One gloo device for all process groups of a rank.

A device has a thread that wakes a hundred times a second. torch makes a device per group and Megatron some 25 groups:
together 4 % of a core in a rank that only waits, 0.6 % with one device.
"""

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


def share_device() -> None:
    """Have every gloo group that torch makes from here on use one device; call before the first group is made."""
    names = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    gloo: Any = dist.ProcessGroupGloo
    device = gloo.create_device(interface=names[0]) if names[0] else gloo.create_default_device()

    class SharedDeviceGloo(dist.ProcessGroupGloo):
        """Takes the arguments that torch passes."""

        def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
            options = gloo._Options()
            options._devices, options._timeout = [device], timeout
            super().__init__(store, rank, size, options)

    distributed_c10d.ProcessGroupGloo = SharedDeviceGloo  # type: ignore[misc,attr-defined]
