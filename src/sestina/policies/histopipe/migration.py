"""Which responses leave the ranking group that they hold up (RhymeRL, section 5.3; algorithms-and-numbers R-F and 4.4).

A response migrates when it is among the last alpha of its group that are unfinished and is longer than beta times
"the maximum historical response length" of the group's prompts. A prompt's historical length is read as the one that it
was ranked by, its median (R-D): the group's bound is the highest of these. Beyond the longest response of all, as the
words allow too, next to nothing comes, where the paper moves 1.5 to 5 % of the responses (table 2).
Generated tokens go with it; KV is computed again.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from sestina.core.ids import RequestId
from sestina.core.units import InstanceId

ALPHA = 0.1
LEAST_BETA = 1.1

Route: TypeAlias = Literal["intra-step", "inter-step"]
"""To another group of the same step, or into the next step."""


def growth_bound(growths: Sequence[float]) -> float:
    """Return beta from each prompt's growth over the last epoch, current over previous length."""
    return max(LEAST_BETA, float(np.percentile(growths, 75))) if len(growths) else LEAST_BETA


def migrating(
    unfinished: Mapping[RequestId, int], *, total: int, highest_median: float, beta: float, alpha: float = ALPHA
) -> list[RequestId]:
    """Return the responses of one ranking group that migrate, in order.

    `unfinished` are their lengths so far, `total` all responses of the group, `highest_median` the highest of its
    prompts' medians in the last epoch.
    """
    if len(unfinished) > alpha * total:
        return []
    return sorted(request for request, length in unfinished.items() if length > beta * highest_median)


def route(group: int, num_groups: int) -> Route:
    """Return where responses of a ranking group go: those of the shorter half to another group of the step."""
    return "intra-step" if group < num_groups // 2 else "inter-step"


def intra_step_target(
    group: int, ranges: Sequence[Sequence[InstanceId]], loads: Mapping[InstanceId, int]
) -> InstanceId | None:
    """Return the least loaded worker of all groups that end later; None when none does.

    `ranges` are the workers of each ranking group (`layout.worker_ranges`), `loads` their running responses.
    """
    later = [worker for workers in ranges[group + 1 :] for worker in workers]
    return min(later, key=lambda worker: (loads[worker], worker), default=None)
