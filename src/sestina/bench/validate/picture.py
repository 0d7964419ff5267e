"""Predicted against measured, one panel for each value."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sestina.bench.validate.outturn import Outturn
from sestina.telemetry.aside import written_aside

_MARKS = "osD^v<>PXdph*8"
WITHIN = 0.1


def draw(pairs: Mapping[str, tuple[Outturn, Outturn]], path: Path) -> Path:
    """Write a PNG of predicted and measured outturns by setting; returns its path."""
    # Imported here: only what draws needs matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    values = list(next(iter(pairs.values()))[0])
    figure = Figure(figsize=(3.6 * len(values), 5.6), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(values), squeeze=False)[0]
    for axes, value in zip(panels, values, strict=True):
        _draw_panel(axes, value, {name: (one[value], other[value]) for name, (one, other) in pairs.items()})
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        canvas.print_png(aside)
    return path


def _draw_panel(axes: Any, value: str, pairs: dict[str, tuple[float, float]]) -> None:  # noqa: ANN401 - untyped library
    most = 1.1 * max(max(pair) for pair in pairs.values())
    axes.fill_between([0, most], [0, (1 - WITHIN) * most], [0, (1 + WITHIN) * most], color="#e6e8eb", linewidth=0)
    axes.plot([0, most], [0, most], color="#b5bac0", linewidth=0.8)
    for number, (name, (predicted, measured)) in enumerate(pairs.items()):
        axes.plot(measured, predicted, _MARKS[number % len(_MARKS)], markersize=5, label=name)
    axes.set_title(value)
    unit = "of the makespan" if value == "tail share" else "s"
    axes.set(xlabel=f"measured, emulated ({unit})", ylabel=f"predicted, simulated ({unit})")
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
