"""What bounded staleness gains, and what it costs."""

from collections.abc import Sequence

import numpy as np

from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run
from sestina.analysis.totals import totals_of
from sestina.core.errors import DataError
from sestina.telemetry.metrics import series


def staleness(runs: Sequence[Run]) -> Picture:
    """Draw three panels over `async.max_staleness`, one point for each run.

    Raises DataError when one is not asynchronous.
    """
    for run in runs:
        if run.config.run.mode != "async":
            raise DataError(f"{run.path}: run.mode is '{run.config.run.mode}'; a sweep of staleness needs 'async'")
    ordered = sorted(runs, key=lambda run: run.config.async_.max_staleness)
    bounds = [run.config.async_.max_staleness for run in ordered]
    rates = [totals_of(run).tokens_per_s for run in ordered]
    panels = (
        ("tokens per second of steps", rates),
        ("accuracy, held-out, last", [_last(run, "eval/accuracy") for run in ordered]),
        ("selection bias (0 to 1), mean", [_mean(run, "async/selection_bias") for run in ordered]),
    )
    with drawn(1, 3, height=3.2) as (figure, all_axes):
        for index, (axes, (label, values)) in enumerate(zip(all_axes, panels, strict=True)):
            axes.plot(range(len(bounds)), values, marker="osD"[index], **line_of(index))
            axes.set_xticks(range(len(bounds)), [str(bound) for bound in bounds])
            axes.set(xlabel="staleness at most (versions)", ylabel=label)
            axes.set_ylim(0, 1.1 * max(np.nanmax([*values, 0.0]), 1e-9))
    gain = rates[-1] / rates[0]
    return Picture(
        name="staleness",
        title="Staleness",
        caption=f"Rollout that need not wait for the trainer gives {gain:.2f} times the tokens at a bound of "
        f"{bounds[-1]} compared with {bounds[0]}; accuracy that falls, or a bias that rises, would be its price.",
        figure=figure,
    )


def _last(run: Run, name: str) -> float:
    values = series(run.metrics, name)
    return values[-1][1] if values else float("nan")


def _mean(run: Run, name: str) -> float:
    values = [value for _, value in series(run.metrics, name)]
    return float(np.mean(values)) if values else float("nan")
