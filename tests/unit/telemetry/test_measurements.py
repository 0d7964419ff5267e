import json
import math
import os
import subprocess

import pytest

from sestina.core.errors import DataError
from sestina.telemetry.measurements import Figure, commit_of, render_markdown, write_measurements

FIGURES = [
    Figure(name="divided over group", value=2.71828, unit="x", must=">= 2", met=True),
    Figure(name="tail share", value=0.5, unit="of rollout", must="<= 0.2", met=False),
    Figure(name="tokens", value=123456.0, unit="tok/s", must=None, met=None),
]


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, timeout=30)


def test_a_file_names_its_machine_commit_and_command(tmp_path):
    path = write_measurements("rollout", FIGURES, tmp_path / "out" / "measurements")
    assert path == tmp_path / "out" / "measurements" / "rollout.json"
    found = json.loads(path.read_text())
    assert found["target"] == "rollout"
    assert set(found["machine"]) == {"cpu", "logical_cores", "memory_gib"}
    assert found["machine"]["logical_cores"] == os.cpu_count()
    assert found["machine"]["cpu"]
    assert 0.1 < found["machine"]["memory_gib"] < 1e5
    assert found["command"]
    assert len(found["date"]) == len("2026-01-01T00:00:00Z")
    assert found["figures"][1] == {
        "name": "tail share", "value": 0.5, "unit": "of rollout", "must": "<= 0.2", "met": False
    }  # fmt: skip
    assert found["figures"][2]["met"] is None


def test_the_commit_is_that_of_the_repository_and_says_when_it_is_dirty(tmp_path, monkeypatch):
    assert commit_of(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert commit_of(tmp_path) is None, "no commit yet"
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    clean = commit_of(tmp_path)
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "a").write_text("2")
    assert commit_of(tmp_path) == f"{clean}+dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None, "no git"


def test_a_value_that_is_not_a_number_is_refused(tmp_path):
    bad = Figure(name="speed", value=math.nan, unit="x", must=None, met=None)
    with pytest.raises(ValueError, match="rollout: the value of 'speed' is not a finite number"):
        write_measurements("rollout", [bad], tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page_is_made_of_every_file_in_order(tmp_path):
    for target in ("weights", "rollout"):
        write_measurements(target, FIGURES, tmp_path)
    page = render_markdown(tmp_path)
    assert page.startswith("# Measurements\n\n## rollout\n\n`")
    assert page.index("## rollout") < page.index("## weights")
    assert page.count("| divided over group | 2.718 x | >= 2 | yes |") == 2
    assert page.count("| tail share | 0.5 of rollout | <= 0.2 | no |") == 2
    assert page.count("| tokens | 123,456 tok/s |  |  |") == 2
    assert page == render_markdown(tmp_path)
    assert page.endswith("|\n")


def test_a_folder_without_measurements_says_so(tmp_path):
    assert render_markdown(tmp_path) == "# Measurements\n\nNone were taken.\n"


def test_a_file_that_is_something_else_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match=r"x\.json: not a file of measurements"):
        render_markdown(tmp_path)


def test_sections_that_were_taken_elsewhere_stay_in_their_place(tmp_path):
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for target in ("async", "rollout", "weights"):
        write_measurements(target, FIGURES, elsewhere)
    before = render_markdown(elsewhere)
    write_measurements("rollout", FIGURES[:1], here)
    (here / "rollout.png").touch()
    page = render_markdown(here, before=before)
    assert page.count("| tail share |") == 2
    assert [line for line in page.splitlines() if line.startswith("## ")] == ["## async", "## rollout", "## weights"]
    assert page.count("![rollout](./rollout.png)") == 1
    assert render_markdown(here, before=page) == page
