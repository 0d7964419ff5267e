"""What all cells come to: median error, orderings, and the ablation's cells each."""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from sestina.core.errors import DataError
from sestina.reproduction.cell import Cell
from sestina.telemetry.measurements import Figure

MEDIAN = 0.10
ABLATION = 0.12
TIE = 1e-3
"""Values less than so much of the greater apart are equal: with lengths drawn anew a value changes by three times that
(AReaL's figure 5c), and which of two is the greater with it."""
ABLATION_TABLE = ("Seer v3", "table 4")


def verdict(cells: Sequence[Cell]) -> list[Figure]:
    """Return the figures with what is asked of them; raises DataError when nothing was predicted."""
    predicted = [cell for cell in cells if cell.kind == "predicted"]
    if not predicted:
        raise DataError("no cell is predicted; there is nothing to judge")
    figures = [
        _at_most("median error of predicted cells", median(abs(cell.error) for cell in predicted), MEDIAN),
        _at_most("pairs of one table and model whose order is inverted", float(len(inversions(cells))), 0.0),
    ]
    figures.append(_counted("pairs of which no order is predicted, equal to a thousandth", len(undecided(cells))))
    ablation = [abs(cell.error) for cell in predicted if (cell.paper, cell.table) == ABLATION_TABLE]
    if ablation:
        figures.append(_at_most(f"largest error of {' '.join(ABLATION_TABLE)}", max(ablation), ABLATION))
    return figures


def inversions(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Return pairs of a paper, table, unit and model, the row's first part, whose published order is inverted.

    Values that are simulated as equal are in none.
    """
    return [(one, other) for one, other in _ordered(cells) if not _equal(one, other)
            and (one.published - other.published) * (one.simulated - other.simulated) < 0]  # fmt: skip


def undecided(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Return pairs that have a published order and are simulated as equal."""
    return [(one, other) for one, other in _ordered(cells) if _equal(one, other)]


def _ordered(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    return [(one, other) for one, other in combinations(cells, 2)
            if _subject(one) == _subject(other) and one.published != other.published]  # fmt: skip


def _equal(one: Cell, other: Cell) -> bool:
    return abs(one.simulated - other.simulated) <= TIE * max(abs(one.simulated), abs(other.simulated))


def _subject(cell: Cell) -> tuple[str, str, str, str]:
    return cell.paper, cell.table, cell.unit, cell.row.partition(", ")[0]


def _counted(name: str, count: int) -> Figure:
    return Figure(name=name, value=float(count), unit="", must=None, met=None)


def _at_most(name: str, value: float, bound: float) -> Figure:
    return Figure(name=name, value=value, unit="", must=f"<= {bound:g}", met=value <= bound)
