"""The batch script's process, with another command in srun's place."""

import json
import os
import signal
import subprocess
import sys

import pytest

from sestina.config.load import load
from sestina.controller.run_dir import RunDir
from sestina.controller.start import write
from tests.unit.cluster.jobs import SLURM
from tests.unit.config.helpers import composed


@pytest.fixture
def run_dir(tmp_path):
    config = load(composed(*SLURM, f"dir={tmp_path / 'run'}"))
    held = RunDir(config.dir)
    held.hold()
    write(held, config)
    held.release()
    return held


def job(run_dir, script):
    command = [sys.executable, "-m", "sestina.cluster.job", str(run_dir.path), sys.executable, "-c", script]
    environment = {**os.environ, "SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_exit_code_is_that_of_the_rank_that_failed(run_dir):
    script = "import sys; sys.stderr.write('srun: error: n9: task 3: Exited with exit code 7\\n'); sys.exit(143)"
    process = job(run_dir, script)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 7
    assert said.splitlines() == [
        "srun: error: n9: task 3: Exited with exit code 7",
        f"job 12, start 2: task 3 on n9 died: Exited with exit code 7 (log: {run_dir.path}/slurm/12.log)",
    ]


def test_how_a_former_start_ended_is_forgotten(run_dir):
    (run_dir.file("failures")).mkdir()
    run_dir.file("failures/0.json").write_text("{}")
    run_dir.file("stop").write_text("time is up")
    run_dir.file("status.json").write_text(json.dumps({"state": "finished"}))
    process = job(run_dir, "")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the ranks have left before the run began" in said
    assert run_dir.file("stop").read_text() == ""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_becomes_a_word_in_the_file_and_does_not_reach_the_ranks(run_dir, number):
    process = job(run_dir, "import time; print('up', flush=True); time.sleep(2)")
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert "SLURM" in run_dir.file("stop").read_text() or "time" in run_dir.file("stop").read_text()
    assert process.returncode == 1
