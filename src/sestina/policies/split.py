"""How a job's GPUs are best shared by rollout and trainer, foreseen from one step that was measured.

Rollout takes time in inverse proportion to its GPUs, and so does training; the weight update takes what it took. One
after the other, they add up; where they overlap, the longer one counts, and the update comes on top.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sestina.core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """GPUs of either side, both at least 1."""

    rollout_gpus: int
    trainer_gpus: int

    def __post_init__(self) -> None:
        assert self.rollout_gpus >= 1, f"rollout_gpus {self.rollout_gpus}, at least 1"
        assert self.trainer_gpus >= 1, f"trainer_gpus {self.trainer_gpus}, at least 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """What a step took at a share, one part after the other."""

    share: Share
    rollout_s: Seconds
    train_s: Seconds
    weights_s: Seconds

    def step_s(self, share: Share, *, overlapping: bool) -> Seconds:
        """Return what a step is foreseen to take at another share; `overlapping`: rollout goes on during training."""
        rollout_s = self.rollout_s * self.share.rollout_gpus / share.rollout_gpus
        train_s = self.train_s * self.share.trainer_gpus / share.trainer_gpus
        return (max(rollout_s, train_s) if overlapping else rollout_s + train_s) + self.weights_s


def whole_shares(gpus: int, *, instance_gpus: int, replica_gpus: int) -> list[Share]:
    """Return the shares of all GPUs into whole instances and whole replicas of the trainer, fewest trainers first."""
    trainers = range(replica_gpus, gpus, replica_gpus)
    return [
        Share(rollout_gpus=gpus - trainer, trainer_gpus=trainer)
        for trainer in trainers
        if (gpus - trainer) % instance_gpus == 0
    ]


def propose(measured: MeasuredStep, shares: Sequence[Share], *, overlapping: bool) -> Share:
    """Return the share whose step is foreseen to be shortest, the first of them; there must be one."""
    return min(shares, key=lambda share: measured.step_s(share, overlapping=overlapping))
