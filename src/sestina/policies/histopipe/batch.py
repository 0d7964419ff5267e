"""A batch as it lies on the workers (RhymeRL, section 5; algorithms-and-numbers R-D, R-E).

With history it is ranked, and its groups get workers by the plan. Without, as in the first epoch, every worker gets as
many prompts as any other, in the order in which they were drawn.
"""

import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId, Seconds
from sestina.policies.events import BatchOffered
from sestina.policies.histopipe.layout import ranking_groups, worker_ranges
from sestina.policies.histopipe.profile import Profile
from sestina.policies.histopipe.workers import RolloutTime, WorkerBounds, plan_workers
from sestina.policies.request_buffer import Entry

PRECISION = 1e-3
"""Of the widest spacing between groups, to which the plan is searched."""


@dataclass(slots=True, kw_only=True)
class RankedGroup:
    """Prompts that roll out together, and their workers."""

    index: int
    workers: tuple[InstanceId, ...]
    highest_median: float
    """Highest of its prompts' medians in the last epoch; 0 without history."""
    total: int = 0
    queue: deque[Entry] = field(default_factory=deque[Entry])
    """Responses that no worker has begun with."""
    unfinished: dict[RequestId, int] = field(default_factory=dict[RequestId, int])
    """Tokens so far."""

    @property
    def share(self) -> int:
        """Responses that one of its workers runs at once, at most: a fair part of all."""
        return -(-self.total // len(self.workers))


@dataclass(slots=True, kw_only=True)
class RankedBatch:
    """Ranking groups, short to long, and who is in which."""

    id: int
    version: int
    beta: float
    ranked: bool
    """Whether there was history to rank by."""
    groups: list[RankedGroup]
    by_prompt: dict[GroupId, RankedGroup]
    by_worker: dict[InstanceId, RankedGroup]

    def add(self, entry: Entry) -> None:
        """Queue a response that waits to be begun."""
        group = self.by_prompt[entry.id.group]
        group.queue.append(entry)
        group.unfinished[entry.id] = entry.generated_tokens
        group.total += 1

    @property
    def over(self) -> bool:
        """Whether every response is complete."""
        return not any(group.unfinished for group in self.groups)


def lay_out(
    offer: BatchOffered,
    prompts: Sequence[GroupId],
    workers: Sequence[InstanceId],
    profile: Profile,
    *,
    num_groups: int,
    step: int,
    two_tier: bool = True,
) -> RankedBatch:
    """Return a batch of these prompts on these workers, nothing queued yet; `step`: of ranked batches, from 1.

    `two_tier`: groups have as many workers as the plan gives them, in place of equally many.
    """
    histories = {spec.group: spec.history for spec in offer.groups if spec.history}
    ranked = any(prompt in histories for prompt in prompts)
    responses = _histories(histories, prompts)
    count = min(num_groups if ranked else len(workers), len(workers), len(prompts))
    members = ranking_groups(responses, count)
    if ranked and two_tier:
        counts = _plan(responses, members, len(workers), profile, offer)
    else:
        counts = [len(workers) // count + (i < len(workers) % count) for i in range(count)]
    groups = [
        RankedGroup(
            index=index,
            workers=tuple(workers[number] for number in numbers),
            highest_median=max(statistics.median(responses[i]) for i in inside) if ranked else 0,
        )
        for index, (inside, numbers) in enumerate(zip(members, worker_ranges(counts, step), strict=True))
    ]
    return RankedBatch(
        id=offer.batch,
        version=offer.version or 0,
        beta=offer.beta,
        ranked=ranked,
        groups=groups,
        by_prompt={prompts[i]: group for inside, group in zip(members, groups, strict=True) for i in inside},
        by_worker={worker: group for group in groups for worker in group.workers},
    )


def _histories(histories: dict[GroupId, tuple[int, ...]], prompts: Sequence[GroupId]) -> list[tuple[int, ...]]:
    """A prompt without history counts as one in the middle."""
    known = [statistics.median(histories[prompt]) for prompt in prompts if prompt in histories]
    middle = (round(statistics.median(known)),) if known else (0,)
    return [histories.get(prompt, middle) for prompt in prompts]


def _plan(
    responses: Sequence[tuple[int, ...]],
    members: Sequence[Sequence[int]],
    num_workers: int,
    profile: Profile,
    offer: BatchOffered,
) -> list[int]:
    """Return the workers of each group; lengths are means of the medians that it was ranked by, which rise.

    The paper's plan has the shortest group end as soon as it can, which takes all workers that it may have unless
    training takes longer. Other ends of it are tried too, and the plan is taken under which two steps take least.
    """
    samples = {spec.group: spec.num_samples for spec in offer.groups}
    per_prompt = max(samples.values())
    lengths = [statistics.fmean(statistics.median(responses[i]) for i in inside) for inside in members]
    tokens = [per_prompt * sum(statistics.fmean(responses[i]) for i in inside) for inside in members]
    longest = list(accumulate((max(max(responses[i]) for i in inside) for inside in members), max))
    of_length = {length: i for i, length in reversed(list(enumerate(lengths)))}

    def tau(length: float, workers: int) -> float:
        group = of_length[length]
        return profile.seconds(longest[group], tokens[group] / workers)

    bounds = WorkerBounds(total=num_workers, fewest=1, most=num_workers - len(members) + 1)
    train_s = offer.train_s if profile.learnt else 0.0
    precision_s = max(1e-9, PRECISION * tau(lengths[-1], 1))
    plans = [
        plan_workers(lengths, tau, bounds, train_s=max(train_s, first_s), precision_s=precision_s)
        for first_s in sorted({tau(lengths[0], workers) for workers in _some(bounds.most)})
    ]
    return min(plans, key=lambda counts: _two_steps(counts, lengths, tau))


def _some(most: int) -> Iterator[int]:
    """Yield numbers of workers for the shortest group, closer to each other where they are few."""
    workers = 1
    while workers <= most:
        yield workers
        workers = max(workers + 1, workers * 3 // 2)


def _two_steps(counts: Sequence[int], lengths: Sequence[float], tau: RolloutTime) -> Seconds:
    """Return what the worker with most to do has to do in a step up the line and one down."""
    ends = [tau(length, count) for length, count in zip(lengths, counts, strict=True)]
    load = [0.0] * sum(counts)
    for step in (1, 2):
        for end, workers in zip(ends, worker_ranges(counts, step), strict=True):
            for worker in workers:
                load[worker] += end
    return max(load)
