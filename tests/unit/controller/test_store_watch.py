import dataclasses
import io
import os
import signal

import pytest
from rich.console import Console

from sestina.config.load import load
from sestina.controller.instance import instance_config
from sestina.controller.store_watch import StoreWatch
from sestina.kvpool import master as masters
from sestina.kvpool.config import pool_name
from sestina.kvpool.master import ADDRESS, START
from tests.unit.config.helpers import composed


@pytest.fixture
def config(tmp_path):
    return load(composed("+exp=quickstart", "rollout/kv_pool=mooncake", f"dir={tmp_path}/run"))


@pytest.fixture
def said():
    return Console(file=io.StringIO(), width=300)


@pytest.fixture
def watch(config, said):
    pytest.importorskip("mooncake.store", reason="Mooncake, or libibverbs1, is not installed", exc_type=ImportError)
    watch = StoreWatch(config, said)
    yield watch
    watch.end()


def with_master(config, master):
    pool = dataclasses.replace(config.rollout.kv_pool, master=master)
    return dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, kv_pool=pool))


def test_ranks_are_told_where_the_runs_own_master_is(watch, config, monkeypatch):
    for name, value in watch.environment.items():
        monkeypatch.setenv(name, value)
    instance = instance_config(config, 0)
    assert (instance.kv_master, instance.host) == (watch.environment[ADDRESS], "127.0.0.1")
    assert instance.kv_pool_name == f"{pool_name(config.dir)}-{watch.environment[START]}"
    assert (config.dir / "logs/mooncake_master.log").exists()
    assert instance_config(with_master(config, "node7:50051"), 0).kv_master == "node7:50051"


def test_no_two_starts_have_the_name_of_their_pages_in_common(config, said, monkeypatch):
    """A named master keeps what a start has left, whose versions may be other weights'."""
    named = with_master(config, "node7:50051")
    monkeypatch.delenv(START, raising=False)
    names = set()
    for start in [StoreWatch(named, said).environment, StoreWatch(named, said).environment]:
        with monkeypatch.context() as launched:
            launched.setenv(START, start[START])
            names.add(instance_config(named, 0).kv_pool_name)
    for job, restarts in [("7", "0"), ("7", "1"), ("8", "0")]:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        names.add(instance_config(named, 0).kv_pool_name)
    assert len(names) == 5
    monkeypatch.setenv("SLURM_HET_JOB_ID", "6")
    assert instance_config(named, 0).kv_pool_name not in names


def test_a_master_that_dies_is_told_of_once(watch, said):
    master = watch._master
    watch.look()
    assert said.file.getvalue() == ""
    os.kill(master.pid, signal.SIGKILL)
    master._process.wait(10)
    watch.look()
    watch.look()
    assert said.file.getvalue().count("mooncake_master ended with exit code -9; requests that move are computed") == 1


def test_the_master_ends_with_the_run(watch):
    master = watch._master
    watch.end()
    assert master.exit_code == -signal.SIGKILL


def test_only_a_run_that_is_to_have_one_starts_a_master(config, said):
    local = load(composed("+exp=quickstart", "rollout/kv_pool=local", f"dir={config.dir}"))
    for other in (with_master(config, "node7:50051"), local):
        watch = StoreWatch(other, said)
        assert ADDRESS not in watch.environment
        watch.look()
        watch.end()
    assert said.file.getvalue() == ""
    assert not config.dir.exists()


def test_a_master_that_does_not_start_is_told_of_and_nothing_more(config, said, monkeypatch, tmp_path):
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake" / "__init__.py").touch()
    monkeypatch.setattr(masters, "environment", lambda: os.environ | {"PYTHONPATH": str(tmp_path)})
    watch = StoreWatch(config, said)
    assert ADDRESS not in watch.environment
    assert "mooncake_master ended with exit code 1; its log: " in said.file.getvalue()
    watch.end()
