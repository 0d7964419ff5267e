"""Cells on the terminal."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.table import Table
from rich.text import Text

from sestina.reproduction.cell import Cell
from sestina.telemetry.measurements import Figure

WHOLE_FROM = 100
"""Values from here on are shown without decimals."""
FAR = 0.12
"""Errors beyond this are red."""


def cell_table(cells: Sequence[Cell]) -> Table:
    """Return every cell under its paper and table."""
    shown = Table(title="published and simulated", title_justify="left", box=box.SIMPLE)
    shown.add_column("value")
    for column in ("published", "simulated", "error"):
        shown.add_column(column, justify="right")
    shown.add_column("")
    for (paper, table), members in groupby(cells, key=lambda cell: (cell.paper, cell.table)):
        shown.add_row(Text(f"{paper}, {table}", "bold"))
        for cell in members:
            shown.add_row(f"  {cell.row}", *values(cell), style="red" if abs(cell.error) > FAR else None)
    return shown


def figure_lines(figures: Sequence[Figure]) -> list[str]:
    """Return a line for each of the verdict's figures."""
    return [f"{figure.name}: {figure.value:.4g}{_asked(figure)}" for figure in figures]


def _asked(figure: Figure) -> str:
    return f" ({figure.must}: {'yes' if figure.met else 'no'})" if figure.must else ""


def values(cell: Cell) -> tuple[str, str, str, str]:
    """Return a cell's published and simulated values with their unit, its error and its kind."""
    unit = f" {cell.unit}" if cell.unit else ""
    return number(cell.published) + unit, number(cell.simulated) + unit, f"{cell.error:+.1%}", cell.kind


def number(value: float) -> str:
    """Return a value with as many decimals as it is worth."""
    return f"{value:,.0f}" if abs(value) >= WHOLE_FROM else f"{value:.2f}"
