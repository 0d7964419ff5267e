"""What a user sets about a simulation of a run."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConfig:
    """What is real in a simulated world, and what its time is."""

    world: Literal["emulated"]
    """emulated: real engines and tokens in one process, each instance under a clock of its own."""
    controller: Literal["measured", "free"]
    """measured: events wait for the controller, which takes the time that it really takes; free: it takes none."""
