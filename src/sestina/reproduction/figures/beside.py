"""One published table beside what was simulated."""

from collections.abc import Sequence

import numpy as np

from sestina.analysis.picture import Picture, area_of, drawn
from sestina.core.errors import DataError
from sestina.reproduction.cell import Cell

WIDTH = 0.38
ROW_INCHES = 0.42


def beside(cells: Sequence[Cell], paper: str, table: str) -> Picture:
    """Draw two bars for each value of a table, its error behind them.

    Raises DataError when nothing is of that table, or when its values have several units.
    """
    found = [cell for cell in cells if (cell.paper, cell.table) == (paper, table)]
    if not found:
        known = sorted({f"{cell.paper}, {cell.table}" for cell in cells})
        raise DataError(f"no value is of {paper}, {table}; there are {'; '.join(known)}")
    units = sorted({cell.unit for cell in found})
    if len(units) > 1:
        raise DataError(f"{paper}, {table}: values in {' and in '.join(units)} have no common axis")
    with drawn(height=1.2 + ROW_INCHES * len(found)) as (figure, [axes]):
        rows = np.arange(len(found))
        axes.barh(rows - WIDTH / 2, [cell.published for cell in found], WIDTH, label="published", **area_of(4))
        values = [cell.simulated for cell in found]
        simulated = axes.barh(rows + WIDTH / 2, values, WIDTH, label="simulated", **area_of(1))
        axes.bar_label(simulated, labels=[_note(cell) for cell in found], padding=4, fontsize=9)
        axes.set_yticks(range(len(found)), [cell.row for cell in found])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlabel(units[0] or "value")
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        figure.legend(loc="outside upper right", ncols=2)
    worst = max(found, key=lambda cell: abs(cell.error) if cell.kind == "predicted" else 0.0)
    return Picture(
        name="beside",
        title=f"{paper}, {table}",
        caption=f"What {paper}, {table} publishes, and what the simulation says of it; farthest off is "
        f"'{worst.row}', by {worst.error:+.1%}.",
        figure=figure,
    )


def _note(cell: Cell) -> str:
    return "fitted" if cell.kind == "fitted" else f"{cell.error:+.0%}"
