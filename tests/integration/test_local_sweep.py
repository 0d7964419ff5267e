"""launch/submit.py --multirun --local: the points of a sweep on this machine, one after the other."""

import subprocess
import sys

import pytest

from sestina.telemetry.status import read_status
from tests.integration.worlds import LIMIT_S, ROOT, arguments, small_model

pytestmark = pytest.mark.mpi


def sweep(folder, model, *points):
    words = arguments("???", model, {"dir": None, "run.steps": 1})
    command = [
        sys.executable,
        "launch/submit.py",
        "--local",
        "--multirun",
        *words,
        f"hydra.sweep.dir={folder}",
        *points,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)


@pytest.mark.slow
def test_points_run_one_after_the_other(tmp_path):
    done = sweep(tmp_path / "sweep", small_model(tmp_path / "model"), "seed=1,2")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = [read_status(tmp_path / "sweep" / point / "status.json") for point in "01"]
    assert first.state == second.state == "finished"
    assert first.updated_at < second.started_at


def test_a_sweep_with_a_point_that_cannot_run_starts_none(tmp_path):
    model = small_model(tmp_path / "model")
    done = sweep(tmp_path / "sweep", model, f"model.path={model},{tmp_path / 'nowhere'}")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nowhere/config.json: no such file" in done.stderr
    assert not list((tmp_path / "sweep").glob("*/status.json"))
