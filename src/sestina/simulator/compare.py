"""Simulated schedulers side by side: a table, a Parquet file, a picture of how responses finish."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.table import Table

from sestina.core.units import Seconds
from sestina.simulator.rollouts import Rollouts
from sestina.telemetry.aside import written_aside

TABLE, PICTURE = "simulated.parquet", "finished.png"

_DASHES = ("solid", "dashed", "dashdot", "dotted")
"""Lines that differ without colour."""


def table_of(compared: Sequence[Rollouts], uncalibrated: Sequence[str]) -> Table:
    """Return means over steps, with speed relative to the first; says what they rest on that nobody measured.

    Speed is of rollouts; in asynchronous training of whole steps, whose rollouts have neither an end nor a tail.
    """
    shown = Table(
        title="simulated, means over steps, seconds",
        title_justify="left",
        box=box.SIMPLE,
        caption_justify="left",
        collapse_padding=True,
    )
    shown.caption = f"not calibrated: {', '.join(uncalibrated)}" if uncalibrated else "all calibrated"
    for name in ("scheduler", "step", "rollout", "tail", "train", "weights", "tokens/s", "x", "preempted"):
        shown.add_column(name, justify="left" if name == "scheduler" else "right")
    mixed = "async/staleness_max" in compared[0].steps[0]
    compares = "perf/step_s" if mixed else "perf/rollout_s"
    first = _mean(compared[0], compares)
    for each in compared:
        spans = [_mean(each, f"perf/{span}_s") for span in ("step", "rollout", "train", "weights")]
        step, rollout, train, weights = map(shown_s, spans)
        tail = "-" if mixed else shown_s(_tail_s(each))
        cells = [f"{_mean(each, 'perf/tokens_per_s'):,.0f}", f"{first / _mean(each, compares):.2f}"]
        cells.append(f"{_mean(each, 'rollout/preemptions'):,.0f}")
        shown.add_row(each.scheduler, step, rollout, tail, train, weights, *cells)
    return shown


def write_table(compared: Sequence[Rollouts], path: Path) -> None:
    """Write all metrics, one row for each scheduler and step."""
    rows = [
        {"scheduler": each.scheduler, "step": step, **line}
        for each in compared
        for step, line in enumerate(each.steps, start=1)
    ]
    with written_aside(path) as aside:
        pq.write_table(pa.Table.from_pylist(rows), aside, compression="zstd")


def draw_finished(compared: Sequence[Rollouts], path: Path) -> None:
    """Draw the share of the last step's responses that had finished over time."""
    # Imported here: only what draws needs matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, each in enumerate(compared):
        shares = [(place + 1) / len(each.finished_s) for place in range(len(each.finished_s))]
        axes.plot(each.finished_s, shares, label=each.scheduler, linestyle=_DASHES[number % len(_DASHES)])
    axes.set_xlabel("seconds since the batch was offered, simulated")
    axes.set_ylabel("share of responses that have finished")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, None)
    axes.grid(visible=True, color="#e6e8eb")
    axes.legend(frameon=False, loc="lower right")
    with written_aside(path) as aside:
        canvas.print_png(aside)


def shown_s(value: Seconds) -> str:
    """Write a span with three digits, or as whole seconds."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits are enough


def _tail_s(each: Rollouts) -> float:
    return fmean(line["rollout/tail_share"] * line["perf/rollout_s"] for line in each.steps)


def _mean(each: Rollouts, name: str) -> float:
    return fmean(line[name] for line in each.steps)
