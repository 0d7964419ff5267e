"""A finished run as a picture, from its directory alone: what it learnt, and where the last rollout's time went."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow.compute as pc

from sestina.core.errors import RunDirError
from sestina.telemetry.aside import written_aside
from sestina.telemetry.metrics import StepMetrics, read_metrics, series
from sestina.telemetry.traces import ChunkRow, RequestRow, read_chunks, read_requests, tail_start

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY, _TAIL = "#1f6fb4", "#d9730d", "#5f6770", "#f6e2dc"
_INSTANCE_COLOURS = ("#4477aa", "#ee8866", "#228833", "#aa3377", "#66ccee", "#ccbb44", "#ee6677", "#888888")
"""Distinct for colour-blind readers; they repeat beyond eight instances."""
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#b5bac0",
    "axes.labelcolor": _GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "grid.color": "#e6e8eb",
    "legend.frameon": False,
}


def draw(run_dir: Path, path: Path) -> None:
    """Write a PNG to `path`; raises RunDirError when the run logged no metrics."""
    # Imported here: only what draws needs matplotlib.
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    lines = read_metrics(run_dir)
    if not lines:
        raise RunDirError(f"{run_dir}: no metrics were logged; there is nothing to draw")
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12, 5), dpi=150, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        figure.suptitle(run_dir.resolve().name, x=0.01, ha="left", fontsize=13, fontweight="bold")
        left, right = figure.subplots(1, 2, width_ratios=(2, 3))
        _draw_learning(left, lines)
        _draw_timeline(right, *_last_rollout(run_dir))
        with written_aside(path) as aside:
            canvas.print_png(aside)


def _draw_learning(axes: "Axes", lines: list[StepMetrics]) -> None:
    rewards, accuracies = series(lines, "rollout/raw_reward"), series(lines, "eval/accuracy")
    axes.set_title("Reward and held-out accuracy")
    axes.set_xlabel("step")
    axes.set_ylabel("mean reward, accuracy")
    axes.grid(visible=True)
    if rewards:
        thin = min(1.6, max(0.7, 150 / len(rewards)))
        axes.plot(*zip(*rewards, strict=True), color=_BLUE, linewidth=thin, label="reward (training batch)")
    if accuracies:
        marks: dict[str, Any] = {"marker": "o", "markersize": 5, "linewidth": 1.6}
        axes.plot(*zip(*accuracies, strict=True), color=_ORANGE, label="accuracy (held-out)", **marks)
    if all(0 <= value <= 1 for _, value in rewards + accuracies):
        axes.set_ylim(0, 1.02)
    axes.locator_params(axis="x", integer=True)
    if rewards or accuracies:
        axes.legend(loc="best")


def _last_rollout(run_dir: Path) -> tuple[list[RequestRow], list[ChunkRow]]:
    requests, chunks = read_requests(run_dir), read_chunks(run_dir)
    requests = requests.filter(pc.invert(pc.field("evaluation")))
    if not requests.num_rows:
        return [], []
    last = pc.field("step") == pc.max(requests["step"])
    rows = [RequestRow(**row) for row in requests.filter(last).to_pylist()]
    return rows, [ChunkRow(**row) for row in chunks.filter(last).to_pylist()]


def _draw_timeline(axes: "Axes", requests: list[RequestRow], chunks: list[ChunkRow]) -> None:
    axes.set_xlabel("seconds since the batch was offered")
    axes.set_ylabel("responses, by time of finish")
    if not requests:
        axes.set_title("Last rollout: not recorded")
        return
    axes.set_title(f"Rollout of step {requests[0].step}: every response, chunk by chunk")
    origin = min(row.offered_s for row in requests)
    ordered = sorted(requests, key=lambda row: row.finished_s)
    height = {(row.group, row.sample): i for i, row in enumerate(ordered)}
    for instance in sorted({chunk.instance for chunk in chunks}):
        _draw_chunks(axes, instance, [c for c in chunks if c.instance == instance], height, origin)
    thin = min(0.5, 60 / len(ordered))
    starts, ends = [row.started_s - origin for row in ordered], [row.finished_s - origin for row in ordered]
    axes.hlines(range(len(ordered)), starts, ends, color="#c9ced4", linewidth=thin, zorder=0.5, label="between chunks")
    end, tail = ends[-1], tail_start(ends)
    label = f"after 90 % of responses: {100 * (end - tail) / end:.0f} % of the time" if end else "no time passed"
    axes.axvspan(tail, end, color=_TAIL, zorder=0, linewidth=0, label=label)
    axes.set_xlim(0, end * 1.005 or 1)
    axes.set_ylim(-0.7, len(ordered) - 0.3)
    handles, labels = axes.get_legend_handles_labels()
    figure = cast("Figure", axes.figure)
    figure.legend(handles, labels, loc="outside lower right", ncols=6, handlelength=1.2, columnspacing=1.4)


def _draw_chunks(
    axes: "Axes", instance: int, chunks: list[ChunkRow], height: dict[tuple[int, int], int], origin: float
) -> None:
    from matplotlib.collections import PolyCollection  # noqa: PLC0415

    bars: list[list[tuple[float, float]]] = []
    for chunk in chunks:
        middle = height.get((chunk.group, chunk.sample))
        if middle is None:
            continue
        start, end = chunk.started_s - origin, chunk.finished_s - origin
        low, high = middle - 0.45, middle + 0.45
        bars.append([(start, low), (end, low), (end, high), (start, high)])
    colour = _INSTANCE_COLOURS[instance % len(_INSTANCE_COLOURS)]
    # Edges part chunks that follow each other; they thin out with the bars.
    edges: dict[str, Any] = {"edgecolors": "white", "linewidths": min(0.8, 40 / len(height))}
    axes.add_collection(PolyCollection(bars, facecolors=colour, snap=False, label=f"instance {instance}", **edges))
