"""Predicts the papers' tables: python launch/reproduce.py [PAPER ...]. Exit code 1 when a goal is missed."""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from rich.console import Console

from sestina.core.errors import SestinaError
from sestina.reproduction.page import write_tables
from sestina.reproduction.papers import PAPERS, cells_of
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
    for path in filter(None, (asked.page, asked.cells)):
        if not path.parent.is_dir():  # said before minutes of simulating
            parser.error(f"{path}: there is no folder {path.parent}")
    cells = cells_of(asked.papers or list(PAPERS), partial(print, flush=True))
    figures = verdict(cells)
    Console(soft_wrap=True).print(cell_table(cells))
    print(*figure_lines(figures), sep="\n")
    if asked.page is not None:
        write_tables(asked.page, cells, figures, command="make reproduce", taken_s=time.process_time())
    if asked.cells is not None:
        write_cells(asked.cells, cells)
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
