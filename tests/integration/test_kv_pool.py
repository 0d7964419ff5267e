"""Requests that move between ranks with their keys and values: equal tokens, nothing computed twice, nothing left."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from sestina.kvpool.config import pool_name
from sestina.kvpool.folder import PREFIX
from sestina.kvpool.local import SHARED_MEMORY
from sestina.telemetry.traces import read_chunks
from tests.integration.worlds import finish, pid_of, small_model, train, training, wait_for

pytestmark = pytest.mark.mpi

POOL = {
    "rollout__kv_pool__kind": "local",
    "rollout__kv_pool__dram_bytes": 1 << 28,
    "rollout__kv_pool__ssd_bytes": 0,
    "rollout__kv_pool__ssd_dir": "null",
    "rollout__kv_pool__move": "always",
    "rollout__num_instances": 2,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def without(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("without") / "run", model, rollout__num_instances=2)
    assert run.code == 0, run.output
    return run


@pytest.fixture(scope="module")
def pooled(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("pooled") / "run", model, **POOL)
    assert run.code == 0, run.output
    return run


def left_behind(run_dir, parent=SHARED_MEMORY):
    return (Path(parent) / f"{PREFIX}{pool_name(run_dir)}").exists()


def test_the_pool_changes_no_token_and_no_weight(pooled, without):
    assert pooled.metric("rollout/tokens_crc32") == without.metric("rollout/tokens_crc32")
    assert pooled.model(2) == without.model(2)


def test_no_resumed_chunk_has_to_prefill_again(pooled, without):
    resumed = pooled.metric("perf/kv_pool_resumed")
    assert min(resumed) > 30
    assert pooled.metric("perf/kv_pool_prefilled_again") == [0, 0]
    assert pooled.metric("perf/kv_pool_hits_dram") == resumed
    assert min(pooled.metric("perf/kv_pool_moved_bytes")) > 0
    rows = read_chunks(pooled.dir).to_pylist()
    moved = [row for row in rows if row["kv_source"] == "dram"]
    assert {row["prefilled_tokens"] for row in moved} == {1}
    computed = zip(pooled.metric("rollout/prefilled_tokens"), without.metric("rollout/prefilled_tokens"), strict=True)
    assert all(mine < others for mine, others in computed)
    assert not without.metric("perf/kv_pool_resumed")


@pytest.mark.slow
def test_both_tiers_full_and_an_ssd_change_no_token(tmp_path, model, without):
    """Memory for a few requests, a disk for a few more: some move through it, some are computed again."""
    tiers = {"rollout__kv_pool__dram_bytes": 200_000, "rollout__kv_pool__ssd_bytes": 200_000}
    (tmp_path / "disk").mkdir()
    run = train(tmp_path / "run", model, **{**POOL, **tiers, "rollout__kv_pool__ssd_dir": tmp_path / "disk"})
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == without.metric("rollout/tokens_crc32")
    assert min(run.metric("perf/kv_pool_hits_ssd")) > 0
    assert min(run.metric("perf/kv_pool_demoted")) > 0
    lost = [run.metric(f"perf/kv_pool_prefilled_again_{reason}") for reason in ("full", "absent")]
    assert min(full + absent for full, absent in zip(*lost, strict=True)) > 0
    assert not left_behind(run.dir)
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.slow
def test_a_killed_rank_leaves_no_shared_memory(tmp_path, model):
    with training(tmp_path / "run", model, run__steps=50, **POOL) as (process, run):
        wait_for(process, run, lambda status: status.step >= 1 and status.phase.startswith("rollout"))
        status = wait_for(process, run, lambda status: True)
        assert left_behind(run.dir)
        os.kill(pid_of(status, "rollout 1"), signal.SIGKILL)
        finish(process, run)
    assert run.code not in (0, 2)
    assert not left_behind(run.dir)


MOONCAKE = {
    "rollout__kv_pool__kind": "mooncake",
    "rollout__kv_pool__master": "null",
    "rollout__kv_pool__segment_bytes": 1 << 25,
    "rollout__kv_pool__protocol": "tcp",
    "rollout__kv_pool__device": '""',
    "rollout__kv_pool__move": "always",
    "rollout__num_instances": 2,
}


@pytest.fixture(scope="module")
def package():
    pytest.importorskip("mooncake.store", reason="Mooncake, or libibverbs1, is not installed", exc_type=ImportError)


def masters_of(run):
    """Masters that say that they write to the run's log."""
    return [
        process
        for process in psutil.process_iter(["name"])
        if process.info["name"] == "mooncake_master" and str(run.dir) in os.readlink(f"/proc/{process.pid}/fd/1")
    ]


def test_mooncake_moves_every_request_and_changes_no_token(tmp_path, package, model, without):
    run = train(tmp_path / "run", model, **MOONCAKE)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == without.metric("rollout/tokens_crc32")
    assert run.metric("perf/kv_pool_prefilled_again") == [0, 0]
    assert run.metric("perf/kv_pool_hits_dram") == run.metric("perf/kv_pool_resumed")
    assert not masters_of(run)


@pytest.mark.slow
def test_a_run_goes_on_without_its_mooncake_master(tmp_path, package, model):
    with training(tmp_path / "run", model, run__steps=6, **MOONCAKE) as (process, run):
        wait_for(process, run, lambda status: status.step >= 1)
        [master] = masters_of(run)
        master.kill()
        finish(process, run)
    assert run.code == 0, run.output
    assert "KV pool: mooncake_master ended with exit code -9" in run.output
    assert run.metric("perf/kv_pool_prefilled_again")[0] == 0
    assert run.metric("perf/kv_pool_prefilled_again_failed")[-1] > 0
    assert run.metric("perf/kv_pool_hits_dram")[-1] == 0


def test_a_run_whose_mooncake_master_is_not_there_computes_again(tmp_path, package, model, without):
    run = train(tmp_path / "run", model, **MOONCAKE | {"rollout__kv_pool__master": "127.0.0.1:1"})
    assert run.code == 0, run.output
    assert "no mooncake_master answers at 127.0.0.1:1" in run.output
    assert run.metric("rollout/tokens_crc32") == without.metric("rollout/tokens_crc32")
    assert min(run.metric("perf/kv_pool_prefilled_again_failed")) > 0


def test_the_last_rank_takes_the_pool_with_it(pooled):
    assert not left_behind(pooled.dir)
