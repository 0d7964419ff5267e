"""What a step would have taken under another scheduler: its own lengths, through the real planner.

Lengths and instances are the journal's, the pace is fitted to the step's own chunks. How much a resumed chunk prefills
is taken from the run too, and is everything where a run has none. The run's own scheduler goes through the same model,
so that its error stands beside what it foretells.
"""

from dataclasses import dataclass, replace

from sestina.analysis.curves import origin_of
from sestina.analysis.pace import pace_of
from sestina.analysis.rehearsal import Work, makespan
from sestina.analysis.run import Run
from sestina.controller.plan import planner_of
from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.core.units import Seconds
from sestina.policies.events import BatchOffered, ChunkFinished, InstanceUp
from sestina.policies.planner import RolloutPlanner, SchedulerKind
from sestina.telemetry.journal import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """Seconds from the offer to the last token of a step."""

    step: int
    scheduler: SchedulerKind
    """The run's own."""
    measured_s: Seconds
    modelled_s: Seconds
    """Under the run's own scheduler."""
    other: SchedulerKind
    other_s: Seconds

    @property
    def error(self) -> float:
        """Return by which share the model is off."""
        return self.modelled_s / self.measured_s - 1


def counterfactual(run: Run, step: int, other: SchedulerKind = "context") -> Counterfactual:
    """Replay a step's lengths under another scheduler; raises DataError when the journal lacks the step's batch."""
    requests, chunks = run.rows_of(step)
    work, pace = work_of(run, step), pace_of(chunks)
    own = run.config.rollout.scheduler
    return Counterfactual(
        step=step,
        scheduler=own,
        measured_s=max(row.finished_s for row in requests) - origin_of(requests, run.config.run.mode),
        modelled_s=makespan(planner_of(run.config), work, pace),
        other=other,
        other_s=makespan(_planner(run, other), work, pace),
    )


def work_of(run: Run, step: int) -> Work:
    """Return the batch of a step; raises DataError when the journal lacks it whole, or when steps overlap.

    Also when the responses had turns.
    """
    if run.config.environment.kind != "none":
        raise DataError(
            f"{run.path}: its responses waited for an environment, which no other scheduler is foretold with"
        )
    first = run.rows_of(step)[0][0]
    # A run that was killed within the step has offered its batch before, and not heard the end of it.
    for segment in reversed(run.journal() if not run.config.overlaps else []):
        for entry in segment.entries:
            match entry.event:
                case BatchOffered(groups=groups, begun=()) if any(each.group == first.group for each in groups):
                    if (work := _work(segment, entry.event)) is not None:
                        return work
                case _:
                    pass
    raise DataError(f"{run.path}: its journal holds no batch that is step {step} alone, from its beginning")


def _planner(run: Run, kind: SchedulerKind) -> RolloutPlanner:
    return planner_of(replace(run.config, rollout=replace(run.config.rollout, scheduler=kind)))


def _work(segment: Segment, offer: BatchOffered) -> Work | None:
    """Return a batch; None where a response to it has not ended."""
    wanted = {each.group for each in offer.groups}
    lengths: dict[RequestId, int] = {}
    left = sum(each.num_samples for each in offer.groups)
    ups: list[InstanceUp] = []
    for entry in segment.entries:
        match entry.event:
            case InstanceUp():
                ups.append(entry.event)
            case ChunkFinished(request=request, produced_tokens=tokens, done=done) if request.group in wanted:
                lengths[request] = lengths.get(request, 0) + tokens
                left -= done
            case _:
                pass
    return None if left else Work(instances=tuple(ups), offer=offer, lengths=lengths)
