"""How a job ended, and whose doing it was: from the status, the failures that ranks left, and what srun said; pure.

A rank that fails by itself leaves a failure. One that is killed cannot: srun alone says which task it was, by its node
and its number within its component.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sestina.cluster.complaints import ABORT, ENDED, TASK, is_end
from sestina.cluster.layout import JobLayout
from sestina.telemetry.failures import Failure
from sestina.telemetry.status import RankProcess, Status

_CONSEQUENCE = "Terminated"
"""What srun says of the tasks that it ends because another one has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do and say at the end of a job."""

    again: bool
    """The run has left with a checkpoint, because its job had to: the job is to be queued again."""
    exit_code: int
    said: str


def judge(
    status: Status | None,
    failures: Sequence[Failure],
    said_by_srun: Sequence[str],
    layout: JobLayout | None,
    *,
    exit_code: int,
    asked: bool,
    moved: bool,
) -> Verdict:
    """Judge an end.

    `exit_code` is srun's, `asked` whether the job asked the run to stop, `moved` whether queuing again leads anywhere.
    """
    if status is not None and status.state == "finished":
        return Verdict(again=False, exit_code=0, said=status.phase)
    if status is not None and status.state == "stopped":
        if asked and not moved:
            late = "no step was saved within the job's time; raise cluster.limit_min, or lower cluster.signal_s"
            return Verdict(again=False, exit_code=1, said=late)
        # Also when the job has not asked: SLURM may tell the ranks alone that it wants the nodes.
        return Verdict(again=True, exit_code=0, said=status.phase)
    return _blame(status, failures, said_by_srun, layout, exit_code)


def _blame(
    status: Status | None,
    failures: Sequence[Failure],
    said_by_srun: Sequence[str],
    layout: JobLayout | None,
    exit_code: int,
) -> Verdict:
    """Find whom a job has failed of."""
    code = exit_code or 1
    killed = _killed(said_by_srun, status, layout)
    first_said = next((line for line in said_by_srun if is_end(line)), "")
    # Once a rank has ended the world, srun complains of all tasks in any order.
    if failures and (first_said.startswith(ABORT) or killed is None or any(map(killed.is_of, failures))):
        first = failures[0]
        said = f"{first.name} on {first.host} failed: {first.why}"
        return Verdict(again=False, exit_code=first.exit_code, said=said)
    if first_said == ENDED:
        return Verdict(again=False, exit_code=code, said="SLURM has ended the job: cancelled, requeued, or out of time")
    if killed is not None:
        return Verdict(again=False, exit_code=killed.exit_code or code, said=killed.said)
    at = "before the run began" if status is None else f"in step {status.step + 1}, waiting for {status.phase}"
    return Verdict(again=False, exit_code=code, said=f"the ranks have left {at}; srun's exit code is {exit_code}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Killed:
    """The first task of which srun said that it ended badly."""

    rank: int | None
    node: str
    exit_code: int | None
    said: str

    def is_of(self, failure: Failure) -> bool:
        """Whether the task itself left this failure, as far as can be told."""
        return failure.host == self.node if self.rank is None else failure.rank == self.rank


def _killed(lines: Sequence[str], status: Status | None, layout: JobLayout | None) -> _Killed | None:
    found = [match for line in lines if (match := TASK.match(line)) and match["how"] != _CONSEQUENCE]
    if not found:
        return None
    node, task, how = found[0]["node"], int(found[0]["task"]), found[0]["how"]
    rank = None if status is None or layout is None else _rank_of(node, task, status.ranks, layout)
    name = f"task {task}" if rank is None or layout is None else layout.name(rank)
    code = re.search(r"exit code (\d+)", how)
    said = f"{name} on {node} died: {how}"
    return _Killed(rank=rank, node=node, exit_code=int(code[1]) if code else None, said=said)


def _rank_of(node: str, task: int, ranks: Sequence[RankProcess], layout: JobLayout) -> int | None:
    """Components have nodes of their own, so that a node tells the component."""
    names = {layout.name(rank): rank for rank in range(layout.tasks)}
    there = [names[rank.name] for rank in ranks if rank.host == node and rank.name in names]
    for number, component in enumerate(layout.components):
        first = layout.first_rank(number)
        if there and first <= there[0] < first + component.tasks:
            return first + task
    return None
