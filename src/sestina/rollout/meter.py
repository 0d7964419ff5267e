"""What work on a device takes, whatever else runs on the machine."""

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from sestina.core.units import Seconds

Meter: TypeAlias = Callable[[], Seconds]
"""Counts time that work takes, from any zero."""


def meter_for(device: Literal["cpu", "cuda"]) -> Meter:
    """Return the meter of work on a device.

    On a CPU it is this thread's time on a core: an instance is taken to have one of its own, whatever else runs here.
    """
    return time.thread_time if device == "cpu" else time.perf_counter
