"""What a simulated world offers to its planner: a step's groups at once, or one group after the other."""

from collections import deque
from dataclasses import dataclass

from sestina.core.ids import GroupId, RequestId
from sestina.core.units import Seconds, Version
from sestina.policies.events import BatchOffered, GroupSpec
from sestina.simulator.response import Response
from sestina.simulator.workload import SimulatedGroup, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOffer:
    """A batch to roll out."""

    step: int
    groups: tuple[tuple[GroupId, SimulatedGroup], ...]
    max_new_tokens: int
    histories: tuple[tuple[int, ...], ...] = ()
    """Lengths of what each group's prompt was answered in the last epoch; empty: of none."""
    beta: float = 1.0
    """As in `BatchOffered`, as are the following."""
    version: Version | None = None
    train_s: Seconds = 0.0

    def responses(self, now: Seconds) -> list[Response]:
        """Return its responses, ordered by (group, sample), none of them begun."""
        return [
            Response(
                id=RequestId(number, sample),
                step=self.step,
                prompt_id=group.prompt_id,
                prompt_tokens=group.prompt_tokens,
                length=length,
                limit=self.max_new_tokens,
                reward_s=reward_s,
                offered_s=now,
                least_version=self.version,
                siblings=group.siblings,
            )
            for number, group in self.groups
            for sample, (length, reward_s) in enumerate(zip(group.lengths, group.rewards_s, strict=True))
        ]

    def event(self, batch: int, *, tell_lengths: bool) -> BatchOffered:
        """Return what the planner is told of it."""
        return BatchOffered(
            batch=batch,
            groups=self._specs(tell_lengths=tell_lengths),
            version=self.version,
            train_s=self.train_s,
            beta=self.beta,
        )

    def _specs(self, *, tell_lengths: bool) -> tuple[GroupSpec, ...]:
        histories = self.histories or ((),) * len(self.groups)
        return tuple(
            GroupSpec(
                group=number,
                prompt_tokens=group.prompt_tokens,
                num_samples=len(group.lengths),
                max_new_tokens=self.max_new_tokens,
                lengths=group.lengths if tell_lengths else (),
                history=history,
            )
            for (number, group), history in zip(self.groups, histories, strict=True)
        )


class SimulatedFeed:
    """A run's place in its workload."""

    def __init__(self, workload: Workload, *, max_new_tokens: int) -> None:
        self._workload, self._max_new_tokens = workload, max_new_tokens
        self._step = 0
        self._ahead: deque[SimulatedGroup] = deque()
        """Of the step that was begun last, the groups that are left."""

    def of_step(self, step: int) -> SimulatedOffer:
        """Return all groups of a step."""
        return self._offer(step, self._workload(step))

    def draw_group(self) -> SimulatedOffer:
        """Return the next group alone and move past it."""
        if not self._ahead:
            self._step += 1
            self._ahead.extend(self._workload(self._step))
        return self._offer(self._step, (self._ahead.popleft(),))

    def _offer(self, step: int, groups: tuple[SimulatedGroup, ...]) -> SimulatedOffer:
        numbered = tuple((group.group, group) for group in groups)
        return SimulatedOffer(step=step, groups=numbered, max_new_tokens=self._max_new_tokens)
