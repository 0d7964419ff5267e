"""What a user sets about asynchronous training."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.ranges import Count, CountOrNone, Share

Overdue: TypeAlias = Literal["wait", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncConfig:
    """How far rollout may be ahead of the trainer."""

    max_staleness: CountOrNone
    """eta: versions between the weights of a sample's first token and those that it trains; 0 is `sync`."""
    max_running_groups: Count | None
    """Groups rolled out at once; null: as many as the staleness allows."""
    overdue: Overdue
    """A group that would grow too old: the trainer waits for it, or goes on and it is dropped."""
    keep_kv: bool
    """At an update, responses go on over the keys and values they have, instead of computing them again."""
    bias_alarm: Share
    """Distance between what is generated and what is trained on, in length or in difficulty, above which there is a
    warning; from 0 to 1."""
