import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sestina.bench.asked import at_least, stated
from sestina.bench.page import write_page
from sestina.bench.table import table
from sestina.core.errors import DataError
from sestina.telemetry.measurements import write_measurements

FIGURES = [
    at_least("rollout: speed-up", 1.5, "x", 2.0),
    stated("rollout: rate", 123456.0, "tokens/s"),
    at_least("packing: share", 1.0, "of all", 0.5),
]
LAUNCH = Path(__file__).parents[3] / "launch" / "bench.py"


def bench(*arguments):
    command = [sys.executable, str(LAUNCH), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_target_that_does_not_exist_is_refused():
    done = bench("trainer")
    assert done.returncode == 2
    assert "invalid choice: 'trainer' (choose from" in done.stderr
    assert all(target in done.stderr for target in ("engine", "packing", "report"))


def test_a_report_needs_measurements_and_is_made_of_them(tmp_path):
    out, page = tmp_path / "out", tmp_path / "docs" / "page.md"
    with pytest.raises(DataError, match=r"out: holds no measurements \(\*\.json\); 'engine' and 'packing' take some"):
        write_page(out, page)
    assert not page.exists()
    write_measurements("rollout", FIGURES, out)
    done = bench("report", "--out", str(out), "--page", str(page))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(page), "")
    assert "| rollout: speed-up | 1.5 x | >= 2 | no |" in page.read_text()
    assert "![" not in page.read_text()
    (out / "rollout.png").write_bytes(b"picture")
    write_page(out, page)
    assert "\n![rollout](page/rollout.png)\n" in page.read_text()
    assert (page.parent / "page" / "rollout.png").read_bytes() == b"picture"
    (out / "other.json").write_text(json.dumps({"target": 1}))
    done = bench("report", "--out", str(out), "--page", str(page))
    assert done.returncode == 2
    assert "other.json: not a file of measurements" in done.stderr
    assert "Traceback" not in done.stderr


def test_seeds_are_for_targets_that_have_some():
    done = bench("packing", "--seeds", "1,2")
    assert done.returncode == 2
    assert "--seeds: packing takes none; async and staleness do" in done.stderr


def test_the_table_shows_every_figure_under_its_subject():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table("rollout", FIGURES))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["speed-up", "1.5", "x", ">=", "2", "no"] in lines
    assert ["rate", "123,456", "tokens/s"] in lines
    assert ["share", "1", "of", "all", ">=", "0.5", "yes"] in lines
    assert lines.index(["rollout"], 1) < lines.index(["packing"])
