"""What a user sets about a simulation of a run."""

from dataclasses import dataclass
from typing import Literal

from sestina.core.ranges import NonNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConfig:
    """What is real in a simulated world, and what its time is."""

    world: Literal["emulated"]
    """emulated: real engines and tokens in one process, each instance under a clock of its own."""
    controller: Literal["measured", "free"]
    """measured: events wait for the controller, which takes the time that it really takes; free: it takes none."""
    train_s: NonNegative
    """What a training step takes, and its weights to be published, in run.mode `pipelined`."""
