"""How prompts' ranks change from one epoch to the next, and which responses migrate for it (RhymeRL, table 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from sestina.core.ids import RequestId
from sestina.policies.histopipe.layout import ranking_groups
from sestina.policies.histopipe.migration import ALPHA, growth_bound, migrating
from sestina.reproduction.rhymerl.worlds import lengths_of

NUM_PROMPTS = 8192
"""Section 7."""

Lengths = Sequence[Sequence[int]]
"""By prompt and sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Of one number of ranking groups, an epoch after they were ranked."""

    accurate: float
    """Share of prompts that are in no higher group now."""
    migrated: float
    """Share of responses that the policy moves, were all of a group begun at once, and whose prompts have moved up.

    The table's classes are disjoint and begin with prompts that have not (algorithms-and-numbers 4.4).
    """


def ranks_of(between: float, num_groups: int, num_prompts: int = NUM_PROMPTS) -> Ranks:
    """Rank prompts by one epoch and look at the next."""
    before, now = (lengths_of(between, num_prompts=num_prompts, epoch=epoch).tolist() for epoch in (1, 2))
    groups = ranking_groups(before, num_groups)
    ranked, again = _places(groups), _places(ranking_groups(now, num_groups))
    moved_up = {prompt for prompt, place in ranked.items() if again[prompt] > place}
    beta = growth_bound([fmean(later) / fmean(first) for first, later in zip(before, now, strict=True)])
    left = [request for group in groups for request in _leaving(group, before, now, beta)]
    migrated = sum(request.group in moved_up for request in left)
    return Ranks(accurate=1 - len(moved_up) / num_prompts, migrated=migrated / sum(map(len, now)))


def _places(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    return {prompt: place for place, group in enumerate(groups) for prompt in group}


def _leaving(group: Sequence[int], before: Lengths, now: Lengths, beta: float) -> list[RequestId]:
    """Return the responses that leave a group when its last ones are left, which are its longest."""
    lengths = {RequestId(prompt, sample): length for prompt in group for sample, length in enumerate(now[prompt])}
    last = sorted(lengths, key=lengths.__getitem__)[len(lengths) - int(ALPHA * len(lengths)) :]
    highest_median = max(median(before[prompt]) for prompt in group)
    unfinished = {request: lengths[request] for request in last}
    return migrating(unfinished, total=len(lengths), highest_median=highest_median, beta=beta)
