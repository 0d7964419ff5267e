"""What a whole run came to, as numbers to compare."""

import math
from dataclasses import dataclass

from sestina.analysis.run import Run
from sestina.core.units import Seconds
from sestina.telemetry.metrics import series
from sestina.telemetry.traces import tail_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All steps of a run together; seconds are those of rollouts, or of steps where a run is asynchronous."""

    seconds: Seconds
    tokens: int
    tail_s: Seconds
    """After 90 % of the responses of each step were finished; NaN where steps overlap."""
    preemptions: int
    prefilled_tokens: int

    @property
    def tokens_per_s(self) -> float:
        """Return the throughput."""
        return self.tokens / self.seconds if self.seconds else math.nan


def totals_of(run: Run) -> Totals:
    """Return a run's totals, those of its steps that have traces and metrics."""
    overlapping = run.config.overlaps
    spans = dict(series(run.metrics, "perf/step_s" if overlapping else "perf/rollout_s"))
    steps = [step for step in run.steps if step in spans]
    rows = [run.rows_of(step) for step in steps]
    finished = [[row.finished_s for row in requests] for requests, _ in rows]
    return Totals(
        seconds=math.fsum(spans[step] for step in steps),
        tokens=sum(row.response_tokens for requests, _ in rows for row in requests),
        tail_s=math.nan if overlapping else math.fsum(max(ends) - tail_start(ends) for ends in finished),
        preemptions=sum(row.preemptions for requests, _ in rows for row in requests),
        prefilled_tokens=sum(row.prefilled_tokens for requests, _ in rows for row in requests),
    )
