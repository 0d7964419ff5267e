"""What all cells come to: median error, orderings, and the ablation's cells each."""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from sestina.core.errors import DataError
from sestina.reproduction.cell import Cell
from sestina.telemetry.measurements import Figure

MEDIAN = 0.10
ABLATION = 0.12
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
    ablation = [abs(cell.error) for cell in predicted if (cell.paper, cell.table) == ABLATION_TABLE]
    if ablation:
        figures.append(_at_most(f"largest error of {' '.join(ABLATION_TABLE)}", max(ablation), ABLATION))
    return figures


def inversions(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Return pairs of a paper, table, unit and model, the row's first part, whose published order is not predicted."""
    return [(one, other) for one, other in combinations(cells, 2) if _subject(one) == _subject(other)
            and (one.published - other.published) * (one.simulated - other.simulated) < 0]  # fmt: skip


def _subject(cell: Cell) -> tuple[str, str, str, str]:
    return cell.paper, cell.table, cell.unit, cell.row.partition(", ")[0]


def _at_most(name: str, value: float, bound: float) -> Figure:
    return Figure(name=name, value=value, unit="", must=f"<= {bound:g}", met=value <= bound)
