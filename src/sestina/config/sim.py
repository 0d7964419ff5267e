"""What a user sets about a simulation of a run."""

from dataclasses import dataclass
from typing import Literal

from sestina.core.ranges import CountOrNone


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConfig:
    """What is real in a simulated world, and what its time is."""

    world: Literal["emulated"]
    """emulated: real engines and tokens in one process, each instance under a clock of its own."""
    trainer_shares: CountOrNone
    """Trainer ranks that share out a batch and the time that it really takes one; 0: nothing is trained."""
    updates: Literal["interrupt", "drain"]
    """What weights do to responses under way in asynchronous training: interrupt them as the run would, or wait."""
    controller: Literal["measured", "free"]
    """measured: events wait for the controller, which takes the time that it really takes; free: it takes none."""
