"""What a response was better than: other responses to its prompt, or the whole batch. N samples, in groups."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

STD_FLOOR = 1e-6
"""Added to a standard deviation, and below it rewards count as equal: float32 means of equal rewards differ."""

Doubles: TypeAlias = Float[Tensor, " n"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Advantages of a batch and what became of its groups."""

    values: Float[Tensor, " n"]
    """0 where the sample does not count, and where it is compared with a group whose rewards are all equal."""
    counted: Bool[Tensor, " n"]
    """False where the reward is NaN: it failed, and the sample stays out of the loss."""
    num_groups: int
    num_equal_groups: int
    """Groups whose rewards are all equal: they teach nothing, by the reward's standard deviation of zero."""


class Groups:
    """Rewards beside those of their groups, in float64. Statistics are over the samples whose reward is not NaN."""

    def __init__(self, rewards: Float[Tensor, " n"], groups: Int[Tensor, " n"]) -> None:
        """`groups` numbers the groups from 0."""
        self.counted = ~rewards.isnan()
        self.rewards = torch.where(self.counted, rewards, 0).double()
        self._index = groups.long()
        self._num_groups = int(groups.max()) + 1
        self.sizes = self._total(self.counted.double())[self._index]
        """[N] counted samples of each sample's group"""
        mean = self._total(self.rewards)[self._index] / self.sizes.clamp(min=1)
        centred = torch.where(self.counted, self.rewards - mean, 0)
        variance = self._total(centred**2)[self._index] / (self.sizes - 1).clamp(min=1)
        self.std = variance.sqrt()
        """[N] unbiased, of each sample's group"""
        self.equal = self.std < STD_FLOOR
        """[N] whether all rewards of the sample's group are equal"""
        self.centred = torch.where(self.equal, 0, centred)
        """[N] rewards less their group's mean"""

    def result(self, values: Doubles) -> Advantages:
        """Return advantages with these values."""
        equal = torch.zeros(self._num_groups, dtype=torch.bool)
        equal[self._index] = self.equal
        return Advantages(
            values=values.float(),
            counted=self.counted,
            num_groups=self._num_groups,
            num_equal_groups=int(equal.sum()),
        )

    def _total(self, values: Doubles) -> Float[Tensor, " groups"]:
        return torch.zeros(self._num_groups, dtype=torch.float64).index_add_(0, self._index, values)


def group_advantages(
    rewards: Float[Tensor, " n"], groups: Int[Tensor, " n"], scale: Literal["std", "none"]
) -> Advantages:
    """Return each reward minus its group's mean, over the group's standard deviation with `scale="std"`.

    GRPO (arXiv 2402.03300, section 4.1.2); without the deviation Dr. GRPO (arXiv 2503.20783, section 3.2).
    """
    found = Groups(rewards, groups)
    return found.result(found.centred / (found.std + STD_FLOOR) if scale == "std" else found.centred)


def leave_one_out_advantages(rewards: Float[Tensor, " n"], groups: Int[Tensor, " n"]) -> Advantages:
    """Return each reward minus the mean of the others of its group.

    RLOO (Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740, section 3.3).
    """
    found = Groups(rewards, groups)
    return found.result(found.centred * found.sizes / (found.sizes - 1).clamp(min=1))


def batch_advantages(rewards: Float[Tensor, " n"], groups: Int[Tensor, " n"], lengths: Int[Tensor, " n"]) -> Advantages:
    """Return rewards normalised over the batch's response tokens, of which each sample has `lengths`.

    PPO without a critic, gamma = lambda = 1, the reward on the last token: every token's advantage is its response's
    reward, and advantages are normalised over the global batch (AReaL, appendix, table of parameters).
    """
    found = Groups(rewards, groups)
    share = found.counted * lengths.double()
    share = share / share.sum().clamp(min=1)
    mean = (share * found.rewards).sum()
    std = (share * (found.rewards - mean) ** 2).sum().sqrt()
    centred = torch.where(found.counted, found.rewards - mean, 0)
    return found.result(centred / (std + STD_FLOOR) if std >= STD_FLOOR else torch.zeros_like(centred))
