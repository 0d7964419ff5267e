"""How many responses are left while an iteration goes on, under each way of scheduling it."""

from pathlib import Path
from typing import Any

from sestina.bench.rollout.compare import Outturns
from sestina.telemetry.aside import written_aside

_COLOURS = ("#888888", "#4477aa", "#d9730d", "#228833", "#aa3377")


def draw(outturns: Outturns, path: Path) -> Path:
    """Write a PNG of the first seed, one panel for each workload; returns its path."""
    # Imported here: only what draws needs matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(6 * len(outturns), 4.5), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(outturns), squeeze=False)[0]
    for axes, (name, ways) in zip(panels, outturns.items(), strict=True):
        _draw_panel(axes, name, {way: found[0].finished_s for way, found in ways.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        canvas.print_png(aside)
    return path


def _draw_panel(axes: Any, name: str, finished: dict[str, tuple[float, ...]]) -> None:  # noqa: ANN401 - untyped library
    axes.set_title(f"{name}: responses left, 16 emulated instances")
    axes.set_xlabel("seconds since the batch was offered")
    axes.set_ylabel("share of responses that is not finished")
    axes.grid(visible=True, color="#e6e8eb")
    for (way, instants), colour in zip(finished.items(), _COLOURS, strict=False):
        left = [1 - (i + 1) / len(instants) for i in range(len(instants))]
        axes.step([0.0, *instants], [1.0, *left], where="post", color=colour, label=way)
    axes.axhline(0.1, color="#b5bac0", linewidth=0.8, linestyle="--")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False)
