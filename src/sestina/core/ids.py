"""Who is who in a rollout: a group is one prompt, a request is one of its G responses."""

from dataclasses import dataclass
from typing import TypeAlias

GroupId: TypeAlias = int
"""Number of a prompt in the order it was drawn; unique over a run, resumes included."""

EVAL_GROUPS: GroupId = 1 << 40
"""Held-out prompt k is group EVAL_GROUPS + k, so evaluation never shares noise with training."""


@dataclass(frozen=True, slots=True, order=True)
class RequestId:
    """Response number `sample` of group `group`; its identity on every instance and in every chunk."""

    group: GroupId
    sample: int

    def __str__(self) -> str:
        return f"g{self.group}/s{self.sample}"
