"""Predicts the papers' tables: python launch/reproduce.py [PAPER ...]. Exit code 1 when a goal is missed."""

import argparse
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from sestina.core.errors import SestinaError
from sestina.reproduction.page import around_tables, write_tables
from sestina.reproduction.papers import PAPERS, predicted
from sestina.reproduction.terminal import cell_table, figure_lines
from sestina.reproduction.verdict import verdict
from sestina.reproduction.written import write_cells


def main() -> int:
    """Predict, compare and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(PAPERS)}; none: all")
    parser.add_argument("--page", type=Path, help="a page whose tables are to be replaced, docs/reproduction.md")
    parser.add_argument("--cells", type=Path, help="a file for all values, analysis/data/reproduction.json")
    asked = parser.parse_args()
    for name in [name for name in asked.papers if name not in PAPERS]:
        parser.error(f"{name!r} is not known; {', '.join(PAPERS)} are")
    # What is wrong is said before minutes of simulating.
    if asked.cells is not None and not asked.cells.parent.is_dir():
        parser.error(f"{asked.cells}: there is no folder {asked.cells.parent}")
    if asked.page is not None:
        around_tables(asked.page)
    found = predicted(asked.papers or list(PAPERS), partial(print, flush=True))
    cells, figures = found.cells, verdict(found.cells)
    Console(soft_wrap=True).print(cell_table(cells))
    print(*figure_lines(figures), sep="\n")
    if asked.page is not None:
        write_tables(asked.page, cells, figures, command="make reproduce", taken_s=found.cpu_s)
    if asked.cells is not None:
        write_cells(asked.cells, cells)
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
