import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sestina.core.errors import DataError
from sestina.reproduction.page import BEGIN, END, write_tables
from sestina.reproduction.terminal import cell_table
from sestina.reproduction.verdict import verdict
from sestina.reproduction.written import read_cells
from tests.unit.reproduction.helpers import cell

ROOT = Path(__file__).parents[3]
CELLS = [
    cell("small, fast", 1.2, 1.0),
    cell("small, slow", 1.0, 1.1),
    cell("small, whole", 3910, 4000, unit="s", kind="fitted", table="figure 8"),
]


def test_tables_take_the_place_of_older_ones_and_of_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nolder\n{END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        write_tables(page, CELLS, verdict(CELLS), command="make reproduce", taken_s=12.0)
    text = page.read_text(encoding="utf-8")
    assert "older" not in text
    assert (text.startswith(f"before\n{BEGIN}\n"), text.endswith(f"{END}\nafter\n")) == (True, True)
    assert text.count("| figure 8 | small, whole | 3,910 s | 4,000 s | +2.3% | fitted |") == 1
    assert "- inverted: Paper v1, table 1: small, fast and small, slow" in text
    assert "12 s of CPU time" in text


def test_a_page_without_a_place_for_tables_is_refused(tmp_path):
    page = tmp_path / "page.md"
    with pytest.raises(DataError, match="there is no such page"):
        write_tables(page, CELLS, [], command="make", taken_s=1.0)
    page.write_text(f"text\n{BEGIN}\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no place for tables"):
        write_tables(page, CELLS, [], command="make", taken_s=1.0)
    assert page.read_text(encoding="utf-8") == f"text\n{BEGIN}\n"


def test_the_terminal_shows_every_cell_under_its_table():
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(cell_table(CELLS))
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert "small, fast 1.20 x 1.00 x -16.7% predicted" in lines
    assert [lines.count(head) for head in ("Paper v1, table 1", "Paper v1, figure 8")] == [1, 1]


def launched(*arguments):
    return subprocess.run(
        [sys.executable, "launch/reproduce.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_paper_alone_is_predicted_and_written(tmp_path):
    done = launched("efficientrollout", "--cells", str(tmp_path / "cells.json"))
    assert {cell.paper for cell in read_cells(tmp_path / "cells.json")} == {"EfficientRollout v1"}
    assert "median error of predicted cells" in done.stdout
    assert "Seer" not in done.stdout
    assert (done.returncode, done.stderr) == (int(": no)" in done.stdout), "")


def test_a_paper_that_is_not_known_is_refused():
    done = launched("nobody")
    assert "'nobody' is not known; areal, efficientrollout, rhymerl, seer are" in done.stderr
    assert done.returncode == 2


def test_a_place_that_is_not_there_is_refused_before_anything_is_simulated(tmp_path):
    (tmp_path / "page.md").write_text("no tables\n", encoding="utf-8")
    for option, place, reason in (
        ("--cells", "none/file", f"there is no folder {tmp_path / 'none'}"),
        ("--page", "none/file", "there is no such page"),
        ("--page", "page.md", "has no place for tables"),
    ):
        done = launched(option, str(tmp_path / place))
        assert f"{tmp_path / place}: {reason}" in done.stderr
        assert (done.returncode, done.stdout) == (2, "")
