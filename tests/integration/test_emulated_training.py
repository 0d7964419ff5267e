"""Training in an emulated world: real engines, a real trainer, virtual time."""

import subprocess
import sys

import pytest

from sestina.policies.planner import build_planner
from sestina.telemetry.journal import read_journal
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.integration.worlds import ROOT, Run, arguments, small_model

pytestmark = pytest.mark.megatron

STEPS, ETA, GROUPS, CHUNK_TOKENS = 5, 1, 8, 400
TRAINED = {"sim.trainer_shares": 4, "run.steps": 3, "reward.num_workers": 1}
AHEAD = {
    **TRAINED,
    "run.mode": "async",
    "run.steps": STEPS,
    "async.max_staleness": ETA,
    "rollout.num_instances": 2,
    "rollout.max_new_tokens": CHUNK_TOKENS,
    "rollout.chunk_tokens": CHUNK_TOKENS,
    "rollout.engine.max_running": 4,
    "rollout.engine.kv_capacity_tokens": 2048,
    "algorithm.minibatches": 1,
}
"""Whole responses, few at a time: rollout takes longer than training, and weights come in the middle of some."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


def emulated(folder, model, changes, *, base=("+exp=quickstart", "reward=function")):
    command = [sys.executable, str(ROOT / "launch/simulate.py"), *arguments(folder, model, changes, base)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(dir=folder)


def test_a_staleness_of_zero_is_synchronous_training_bit_for_bit(tmp_path, model):
    sync = emulated(tmp_path / "sync", model, {**TRAINED, "eval.every": 3})
    zero = emulated(
        tmp_path / "zero",
        model,
        {**TRAINED, "eval.every": 3, "run.mode": "async", "async.max_staleness": 0, "rollout.num_instances": 5},
    )
    for name in ("rollout/tokens_crc32", "train/grad_norm", "eval/accuracy"):
        assert zero.metric(name) == sync.metric(name)
    assert len(set(sync.metric("rollout/tokens_crc32"))) == 3
    assert len(sync.metric("eval/accuracy")) == 2
    assert zero.metric("async/staleness_max") == [0, 0, 0]
    assert min(sync.metric("train/grad_norm")) > 0
    assert max(sync.metric("train/train_rollout_logprob_abs_diff")) < 1e-4
    for step, rollout_s, train_s, weights_s in zip(
        *(zero.metric(f"perf/{part}_s") for part in ("step", "rollout", "train", "weights")), strict=True
    ):
        assert min(rollout_s, train_s, weights_s) > 0
        assert rollout_s + train_s + weights_s <= step


@pytest.mark.slow
@pytest.mark.parametrize("updates", ["interrupt", "drain"])
def test_rollout_runs_ahead_within_the_bound(tmp_path, model, updates):
    run = emulated(
        tmp_path / "run",
        model,
        {**AHEAD, "sim.updates": updates},
        base=("+exp=quickstart", "reward=function", "algorithm=ppo"),
    )
    assert max(run.metric("async/staleness_max")) == ETA
    assert max(run.metric("train/train_rollout_logprob_abs_diff"), default=0) < 1e-4
    assert (sum(run.metric("async/interruptions")) > 0) is (updates == "interrupt")
    assert (max(run.metric("async/mixed_version_ratio")) > 0) is (updates == "interrupt")
    assert min(run.metric("perf/rollout_s")) > 0, "a batch that waits for the trainer is still put together"
    rows = read_requests(run.dir).to_pylist()
    assert len({(row["group"], row["sample"]) for row in rows}) == len(rows) == STEPS * 32
    assert {row["group"] for row in rows} == set(range(STEPS * GROUPS))
    tokens = sum(row["response_tokens"] for row in rows)
    assert run.metric("async/tokens_trained")[-1] == tokens == run.metric("async/tokens_generated")[-1]
    assert sum(row["tokens"] for row in read_chunks(run.dir).to_pylist()) == tokens
    [segment] = read_journal(run.dir / "journal.jsonl")
    assert replay(segment, build_planner("divided", chunk_tokens=CHUNK_TOKENS, seed=0)) is None


@pytest.mark.slow
def test_what_grows_too_old_is_dropped(tmp_path, model):
    # Which groups straddle two versions is a matter of times that are measured: in five steps one does, or none.
    changes = {**AHEAD, "async.overdue": "drop", "sim.trainer_shares": 1000, "run.steps": 2 * STEPS}
    run = emulated(tmp_path / "run", model, changes)
    assert run.metric("async/groups_dropped")[-1] > 0
    assert run.metric("async/tokens_dropped")[-1] > 0
    assert max(run.metric("async/staleness_max")) <= ETA


def test_a_trainer_that_is_late_is_named_and_nothing_after_it(tmp_path, model):
    changes = {**TRAINED, "deadlines.train_s": 0.01}
    command = [
        *(sys.executable, str(ROOT / "launch/simulate.py")),
        *arguments(tmp_path / "run", model, changes, ("+exp=quickstart", "reward=function")),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "waited 0.01 s for the emulated trainer to train"
