"""How far every predicted value is from the published one."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from sestina.analysis.picture import Picture, drawn
from sestina.core.errors import DataError
from sestina.reproduction.cell import Cell
from sestina.reproduction.verdict import MEDIAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
ROW_INCHES = 0.28
MARKS = {"predicted": {"marker": "o", "facecolors": "#12395b"}, "fitted": {"marker": "D", "facecolors": "white"}}


def agreement(cells: Sequence[Cell]) -> Picture:
    """Draw simulated over published values, a row for each table; raises DataError when nothing was predicted."""
    errors = [abs(cell.error) for cell in cells if cell.kind == "predicted"]
    if not errors:
        raise DataError("no cell is predicted; there is no agreement to draw")
    tables = _by_table(cells)
    with drawn(height=1.4 + ROW_INCHES * len(tables)) as (figure, [axes]):
        axes.axvspan(1 - MEDIAN, 1 + MEDIAN, color="#dfe6ec", label=f"within {MEDIAN:.0%}")
        axes.axvline(1, color="#8a9097", linewidth=1)
        for kind, mark in MARKS.items():
            _scatter(axes, tables, kind, mark)
        axes.set(xscale="log", xlabel="simulated over published value")
        low, high = axes.get_xlim()
        ticks = [tick for tick in TICKS if low <= tick <= high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(tables)), list(tables))
        axes.set_ylim(len(tables) - 0.5, -0.5)
        figure.legend(loc="outside upper right", ncols=3)
    within = sum(error <= MEDIAN for error in errors)
    return Picture(
        name="agreement",
        title="Published and simulated",
        caption=f"{within} of {len(errors)} predicted values are within {MEDIAN:.0%} of the published ones, half of "
        f"them within {median(errors):.1%}; values that something was fitted to are hollow.",
        figure=figure,
    )


def _by_table(cells: Sequence[Cell]) -> Mapping[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(f"{cell.paper}, {cell.table}", []).append(cell)
    return found


def _scatter(axes: "Axes", tables: Mapping[str, Sequence[Cell]], kind: str, mark: Mapping[str, str]) -> None:
    points = [
        (cell.simulated / cell.published, row)
        for row, members in enumerate(tables.values())
        for cell in members
        if cell.kind == kind
    ]
    if points:
        axes.scatter(*zip(*points, strict=True), s=34, edgecolors="#12395b", alpha=0.8, label=kind, zorder=3, **mark)
