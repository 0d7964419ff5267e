import io

import pytest
from rich.console import Console

from sestina.cluster.submit import plan_jobs, show_jobs, submit_jobs
from sestina.config.load import load
from sestina.config.resolved import read_resolved
from sestina.core.errors import ConfigError, UserError
from tests.unit.cluster.jobs import SLURM
from tests.unit.config.helpers import composed


def console():
    return Console(file=io.StringIO(), soft_wrap=True)


@pytest.fixture
def config(tmp_path):
    return load(composed(*SLURM, f"dir={tmp_path / 'run'}"))


def test_a_dry_run_writes_and_prints_what_a_job_would_be(config):
    shown = console()
    show_jobs(plan_jobs([config]), shown)
    folder = config.dir / "slurm/dry-run"
    assert read_resolved(folder / "config.yaml") == config
    for name in ("config.yaml", "layout.txt", "job.sh"):
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
