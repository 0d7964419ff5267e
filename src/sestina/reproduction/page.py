"""The tables of docs/reproduction.md; what stands outside of them is written by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from sestina.core.errors import DataError
from sestina.core.units import Seconds
from sestina.reproduction.cell import Cell
from sestina.reproduction.terminal import figure_lines, values
from sestina.reproduction.verdict import inversions, undecided
from sestina.telemetry.aside import written_aside
from sestina.telemetry.measurements import Figure, Machine, commit_of, this_machine

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def write_tables(
    page: Path, cells: Sequence[Cell], figures: Sequence[Figure], *, command: str, taken_s: Seconds
) -> None:
    """Replace the tables of a page, which stand between two comments; raises DataError on a page without them."""
    before, after = around_tables(page)
    taken = f"`{command}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit_of(Path.cwd()) or 'unknown'}; "
    head = taken + f"{_described(this_machine())}; {taken_s:.0f} s of CPU time."
    text = "\n\n".join([head, *_verdict(cells, figures), *_tables(cells)])
    with written_aside(page) as aside:
        aside.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def around_tables(page: Path) -> tuple[str, str]:
    """Return what stands before the tables of a page, and what behind; raises DataError on a page without them."""
    if not page.exists():
        raise DataError(f"{page}: there is no such page")
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise DataError(f"{page}: has no place for tables; it is between the lines '{BEGIN}' and '{END}'")
    return before, after


def _described(machine: Machine) -> str:
    return f"{machine.cpu}, {machine.logical_cores} logical cores, {machine.memory_gib:g} GiB"


def _verdict(cells: Sequence[Cell], figures: Sequence[Figure]) -> list[str]:
    pairs = {"inverted": inversions(cells), "no order": undecided(cells)}
    named = [
        f"{what}: {one.paper}, {one.table}: {one.row} and {other.row}"
        for what, found in pairs.items()
        for one, other in found
    ]
    lines = [*figure_lines(figures), *named]
    return ["\n".join(f"- {line}" for line in lines)]


def _tables(cells: Sequence[Cell]) -> list[str]:
    found: list[str] = []
    for paper, members in groupby(cells, key=lambda cell: cell.paper):
        rows = [f"| {cell.table} | {cell.row} | {' | '.join(values(cell))} |" for cell in members]
        lines = ["| table | value | published | simulated | error | |", "|---|---|---|---|---|---|", *rows]
        found += [f"### {paper}", "\n".join(lines)]
    return found
