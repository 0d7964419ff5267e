"""A published value beside what a simulation says."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["predicted", "fitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value of a paper's table or figure."""

    paper: str
    """Such as "Seer v3"; two versions of a paper are two papers."""
    table: str
    """Such as "figure 7"."""
    row: str
    """What the value is of, such as "Qwen2-VL-72B, divided over baseline"."""
    unit: str
    published: float
    simulated: float
    kind: Kind
    """fitted: a parameter was chosen for this value; it says nothing about the simulation."""

    @property
    def error(self) -> float:
        """Share of the published value by which the simulated one is above it."""
        return self.simulated / self.published - 1


def cell_of(
    paper: str, table: str, row: str, unit: str, published: float, simulated: float, kind: Kind = "predicted"
) -> Cell:
    """Return a cell by its values alone, for papers of many."""
    return Cell(paper=paper, table=table, row=row, unit=unit, published=published, simulated=simulated, kind=kind)
