"""What every list of figures must be, and the traces of a run that was never taken."""

import math

from sestina.telemetry.metrics import StepMetrics
from sestina.telemetry.traces import RequestRow, write_step


def by_name(figures):
    """Return values by name after checking that the figures are well-formed."""
    for figure in figures:
        assert math.isfinite(figure.value)
        assert figure.unit
        assert (figure.must is None) == (figure.met is None)
    found = {figure.name: figure for figure in figures}
    assert len(found) == len(figures), "a name occurs twice"
    return found


def line_of(step, rollout_s, train_s, step_s):
    """Return a step's metrics of these times."""
    values = {"perf/rollout_s": rollout_s, "perf/train_s": train_s, "perf/step_s": step_s}
    return StepMetrics(step=step, time=0.0, values=values)


def write_groups(run_dir, step, begins_s, groups):
    """Write a step's traces: groups of two responses that end some time after it begins, with as many tokens in all."""
    rows = [row(step, begins_s, group, sample, *of) for group, of in groups.items() for sample in range(2)]
    write_step(run_dir, step, rows, [])


def row(step, begins_s, group, sample, after_s, tokens):
    """Return a response; the first of its group has its reward halfway."""
    over_s = begins_s + after_s * (sample + 1) / 2
    return RequestRow(
        step=step,
        group=group,
        sample=sample,
        prompt_id=f"p{group}",
        evaluation=False,
        prompt_tokens=1,
        response_tokens=tokens // 2 - 1,
        num_chunks=1,
        finish="stop",
        reward=1.0,
        reward_error=None,
        reward_s=0.0,
        first_version=step - 1,
        last_version=step - 1,
        offered_s=begins_s,
        started_s=begins_s,
        finished_s=over_s,
        rewarded_s=over_s,
        preemptions=0,
        prefilled_tokens=0,
        cached_tokens=0,
    )
