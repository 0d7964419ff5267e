"""Group-normalised advantages (GRPO, arXiv 2402.03300, section 4.1.2). N samples, in groups."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

STD_FLOOR = 1e-6
"""Added to a group's standard deviation, and below it rewards count as equal: float32 means of equal rewards differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Advantages of a batch and what became of its groups."""

    values: Float[Tensor, " n"]
    """0 where the sample does not count and where the group's rewards are all equal."""
    counted: Bool[Tensor, " n"]
    """False where the reward is NaN: it failed, and the sample stays out of the loss."""
    num_groups: int
    num_equal_groups: int
    """Groups whose rewards are all equal: they teach nothing, by the reward's standard deviation of zero."""


def group_advantages(
    rewards: Float[Tensor, " n"], groups: Int[Tensor, " n"], scale: Literal["std", "none"]
) -> Advantages:
    """Return each reward minus its group's mean, over the group's standard deviation (unbiased) with `scale="std"`.

    `groups` numbers the groups from 0. Statistics are over the samples whose reward is not NaN.
    """
    counted = ~rewards.isnan()
    num_groups = int(groups.max()) + 1
    exact = torch.where(counted, rewards, 0).double()
    index = groups.long()

    def total(values: Float[Tensor, " n"]) -> Float[Tensor, " groups"]:
        return torch.zeros(num_groups, dtype=torch.float64).index_add_(0, index, values)

    count = total(counted.double())
    centred = torch.where(counted, exact - (total(exact) / count.clamp(min=1))[index], 0)
    std = (total(centred**2) / (count - 1).clamp(min=1)).sqrt()
    equal = std < STD_FLOOR
    centred = torch.where(equal[index], 0, centred)
    values = centred / (std + STD_FLOOR)[index] if scale == "std" else centred
    return Advantages(
        values=values.float(),
        counted=counted,
        num_groups=num_groups,
        num_equal_groups=int(equal.sum()),
    )
