"""What rollouts of a system on a world come to, in the mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sestina.core.units import Seconds
from sestina.policies.group import EvenScheduler
from sestina.policies.planner import RolloutPlanner, SchedulerKind
from sestina.simulator.outcome import finished_after
from sestina.simulator.response import Response
from sestina.simulator.rollouts import driver_of, take_step
from sestina.simulator.world import World
from sestina.telemetry.traces import tail_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one iteration, or the mean of several."""

    rollout_s: Seconds
    tail_s: Seconds
    """In which only the last tenth of the responses was left."""
    preemptions: float
    accepted: float
    """Tokens of a step."""
    idle: float
    """Mean share of the rollout for which an instance is done."""
    spread: float
    """Share of the rollout between the first instance to be done and the last."""

    @property
    def tail_share(self) -> float:
        """Return the tail's share of the rollout."""
        return self.tail_s / self.rollout_s


def rolled_out(world: World, scheduler: SchedulerKind, iterations: int, *, replicas: int = 1) -> Outcome:
    """Simulate so many iterations, each with lengths of its own; `group` has equally many groups on each instance.

    `replicas`: the world's instances that are one instance of the system (`EvenScheduler`).
    """
    return mean([_iteration(world, scheduler, step, replicas) for step in range(1, iterations + 1)])


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean of every value."""

    def of(value: Callable[[Outcome], float]) -> float:
        return fmean(map(value, outcomes))

    return Outcome(
        rollout_s=of(lambda one: one.rollout_s),
        tail_s=of(lambda one: one.tail_s),
        preemptions=of(lambda one: one.preemptions),
        accepted=of(lambda one: one.accepted),
        idle=of(lambda one: one.idle),
        spread=of(lambda one: one.spread),
    )


def _iteration(world: World, scheduler: SchedulerKind, step: int, replicas: int) -> Outcome:
    planner = RolloutPlanner(EvenScheduler(seed=0, replicas=replicas)) if scheduler == "group" else None
    responses, metrics = take_step(world, driver_of(world, scheduler, None, planner), step)
    finished = finished_after(responses)
    ends = _instance_ends(responses)
    return Outcome(
        rollout_s=finished[-1],
        tail_s=finished[-1] - tail_start(finished),
        preemptions=metrics["rollout/preemptions"],
        accepted=metrics["spec/acceptance_length"],
        idle=1 - fmean(ends) / finished[-1],
        spread=(max(ends) - min(ends)) / finished[-1],
    )


def _instance_ends(responses: Sequence[Response]) -> list[Seconds]:
    """Return when each instance was done, since the offer."""
    ends: dict[int, Seconds] = {}
    for response in responses:
        for row in response.chunks:
            ends[row.instance] = max(ends.get(row.instance, 0.0), row.finished_s - response.offered_s)
    return list(ends.values())
