"""A finished run as a table, from its directory alone."""

import math
from pathlib import Path

from rich import box
from rich.table import Table

from sestina.core.errors import RunDirError
from sestina.telemetry.display import duration
from sestina.telemetry.idle import PREFIX
from sestina.telemetry.metrics import StepMetrics, read_metrics, series
from sestina.telemetry.sweep import Cause

_CHANGES = (
    ("reward", "rollout/raw_reward", ".3f"),
    ("accuracy, held-out", "eval/accuracy", ".3f"),
    ("length of correct answers, held-out", "eval/correct_response_len/mean", ".1f"),
    ("length of correct answers, training", "rollout/correct_response_len/mean", ".1f"),
)
"""Label, metric and format of what is shown as first -> last."""

CAUSE_LABELS: tuple[tuple[Cause, str], ...] = (
    ("last_request", "the last response alone"),
    ("imbalance", "imbalance of instances"),
    ("queueing", "queueing"),
    ("recompute", "prefilling again, at most"),
    ("reward", "rewards"),
    ("train", "training"),
    ("weights", "weight updates"),
    ("rest", "evaluation and the rest"),
)
"""Cause and label of what instances lose."""

_PARTS = (("rollout", "perf/rollout_s"), ("train", "perf/train_s"), ("weights", "perf/weights_s"))


def summary(run_dir: Path) -> Table:
    """Return what a run achieved and where its time went; raises RunDirError when it took no step."""
    lines = read_metrics(run_dir)
    steps = series(lines, "perf/step_s")
    if not steps:
        raise RunDirError(f"{run_dir}: no step was taken; there is nothing to report")
    table = Table(
        title=f"{run_dir.name}: {steps[-1][0]} steps", title_justify="left", box=box.SIMPLE, show_header=False
    )
    table.add_column(style="dim")
    table.add_column()
    for label, name, form in _CHANGES:
        table.add_row(label, _change(series(lines, name), form))
    table.add_section()
    for label, text in _times(lines) + _counts(lines):
        table.add_row(label, text)
    if lost := _lost(lines):
        table.add_section()
        for label, text in lost:
            table.add_row(label, text)
    return table


def _change(values: list[tuple[int, float]], form: str) -> str:
    if not values:
        return "not measured"
    (first_step, first), (last_step, last) = values[0], values[-1]
    return f"{first:{form}} -> {last:{form}}  (steps {first_step} -> {last_step})"


def _times(lines: list[StepMetrics]) -> list[tuple[str, str]]:
    total, count = _total(lines, "perf/step_s"), len(series(lines, "perf/step_s"))
    spans = [(label, _total(lines, name)) for label, name in _PARTS]
    spans.append(("other", max(0.0, total - math.fsum(span for _, span in spans))))
    rows = [("time in steps", f"{duration(total)}, {total / count:.2f} s each")]
    for label, span in spans:
        rows.append((f"  {label}", f"{duration(span)} ({_percent(span, total)}), {span / count:.2f} s each"))
    return rows


def _counts(lines: list[StepMetrics]) -> list[tuple[str, str]]:
    stale = [value for _, value in series(lines, "async/staleness_max")]
    if stale:  # rollout goes on all the time, and no span is its own
        first = [_tokens(lines, "perf/step_s", "step"), ("staleness at most", f"{max(stale):.0f} versions")]
    else:
        first = [
            _tokens(lines, "perf/rollout_s", "rollout"),
            ("after 90 % of responses were finished", _tail(lines)),
        ]
    return [
        *first,
        ("preemptions", f"{_total(lines, 'rollout/preemptions'):.0f}"),
        ("reward failures", f"{_total(lines, 'rollout/reward_failures'):.0f}"),
    ]


def _lost(lines: list[StepMetrics]) -> list[tuple[str, str]]:
    """Return what kept instances from computing tokens; nothing where that is not known."""
    area_s = _total(lines, f"{PREFIX}area_s")
    if not area_s:
        return []
    lost_s = _total(lines, f"{PREFIX}lost_s")
    rows = [("instance-seconds without a token", f"{lost_s:,.1f} of {area_s:,.1f} ({_percent(lost_s, area_s)})")]
    for cause, label in CAUSE_LABELS:
        span_s = _total(lines, f"{PREFIX}{cause}_s")
        rows.append((f"  {label}", f"{span_s:,.1f} ({_percent(span_s, area_s)})"))
    return rows


def _tokens(lines: list[StepMetrics], span: str, of: str) -> tuple[str, str]:
    tokens, seconds = _total(lines, "perf/rollout_tokens"), _total(lines, span)
    return "tokens generated", f"{tokens:,.0f}" + (f", {tokens / seconds:.0f} per second of {of}" if seconds else "")


def _tail(lines: list[StepMetrics]) -> str:
    spans = dict(series(lines, "perf/rollout_s"))
    tails = [(share * spans[step], spans[step]) for step, share in series(lines, "rollout/tail_share") if step in spans]
    if not tails:
        return "not measured"
    return f"{_percent(math.fsum(tail for tail, _ in tails), math.fsum(span for _, span in tails))} of rollout time"


def _total(lines: list[StepMetrics], name: str) -> float:
    return math.fsum(value for _, value in series(lines, name))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"
