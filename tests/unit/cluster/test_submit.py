import io
import subprocess
import sys

import pytest
from rich.console import Console

from sestina.cluster.show import show_jobs
from sestina.cluster.submit import plan_jobs, submit_jobs
from sestina.config.load import load
from sestina.config.resolved import read_resolved, write_resolved
from sestina.controller.run_dir import RunDir
from sestina.core.errors import ConfigError, UserError
from tests.unit.cluster.jobs import SLURM
from tests.unit.config.helpers import CONF, composed


def console():
    return Console(file=io.StringIO(), soft_wrap=True)


@pytest.fixture
def config(tmp_path):
    return load(composed(*SLURM, f"dir={tmp_path / 'run'}"))


def test_a_dry_run_writes_and_prints_what_a_job_would_be(config):
    shown = console()
    show_jobs(plan_jobs([config]), shown, ())
    folder = config.dir / "slurm/dry-run"
    assert read_resolved(folder / "config.yaml") == config
    for name in ("config.yaml", "layout.txt", "job.sh", "prediction.txt"):
        assert (folder / name).read_text() in shown.file.getvalue()
    assert "component 1: rollout@1; 3 ranks on 3 nodes, 1 ranks and 0 GPUs each" in (folder / "layout.txt").read_text()
    assert shown.file.getvalue().endswith("nothing was submitted\n")
    assert not (config.dir / "config.yaml").exists()


def test_a_run_without_a_cluster_is_no_job():
    with pytest.raises(ConfigError, match="choose cluster=cpu or cluster=gpu, or use --local"):
        plan_jobs([load(composed("+exp=quickstart"))])


def test_where_slurm_is_not_installed_it_is_said_and_nothing_is_written(config, monkeypatch, tmp_path):
    plans = plan_jobs([config])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sinfo is not installed here"):
        submit_jobs(plans, console())
    assert not config.dir.exists()


def test_a_finished_run_is_passed_over(config):
    done = RunDir(config.dir).checkpoint(config.run.steps)
    done.mkdir(parents=True)
    write_resolved(config, done / "config.yaml")
    said = console()
    submit_jobs(plan_jobs([config]), said)
    assert "has taken all 50 steps already; raise run.steps to go on" in said.file.getvalue()


def test_the_command_shows_a_sweep_or_refuses_all_of_it(tmp_path):
    def submitted(*words):
        command = [sys.executable, "launch/submit.py", "+exp=quickstart_slurm", f"dir={tmp_path / 'sweep'}", *words]
        return subprocess.run(command, cwd=CONF.parent, capture_output=True, text=True, timeout=120, check=False)

    refused = submitted("--multirun", "--dry-run", "rollout.chunk_tokens=16,0")
    assert refused.returncode == 2
    assert "run 1: rollout.chunk_tokens: 0 is not allowed" in refused.stderr
    assert not (tmp_path / "sweep").exists()
    shown = submitted("--multirun", "--dry-run", "rollout.chunk_tokens=16,64")
    assert shown.returncode == 0, shown.stderr
    assert [path.name for path in sorted((tmp_path / "sweep").iterdir())] == ["0", "1"]
    second = read_resolved(tmp_path / "sweep/1/slurm/dry-run/config.yaml")
    assert (second.rollout.chunk_tokens, second.telemetry.wandb_group) == (64, "quickstart_slurm")
