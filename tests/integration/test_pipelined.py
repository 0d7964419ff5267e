"""Pipelined training in a real world of ranks: a step ahead, never two; weights change between batches, not in them."""

import os
import signal

import pytest

from sestina.policies.planner import build_planner
from sestina.telemetry.journal import read_journal
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.integration.worlds import BASE, finish, pid_of, small_model, train, training, wait_for

pytestmark = pytest.mark.mpi

STEPS = 6
AHEAD = {"run__mode": "pipelined", "run__steps": STEPS, "rollout__scheduler": "histopipe", "data__num_prompts": 16}
"""Two steps to an epoch: from the third on there is history."""
PPO = (*BASE, "algorithm=ppo")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ahead(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("ahead") / "run", model, PPO, **AHEAD, eval__every=3)
    assert run.code == 0, run.output
    return run


def check(run):
    assert run.metric("async/staleness_max")[0] == 0
    assert max(run.metric("async/staleness_max")) == 1
    assert max(run.metric("train/train_rollout_logprob_abs_diff"), default=0) < 1e-4
    rows = [row for row in read_requests(run.dir).to_pylist() if not row["evaluation"]]
    trained = [(row["group"], row["sample"]) for row in rows]
    assert len(set(trained)) == len(trained) == STEPS * 32
    assert all(row["step"] == row["group"] // 8 + 1 for row in rows), "every step has its own prompts"
    assert all(0 <= row["step"] - 1 - row["first_version"] <= 1 for row in rows)
    return rows


def test_a_step_is_rolled_out_while_the_one_before_trains(ahead):
    assert "no prompt has a history yet" in ahead.output
    rows = check(ahead)
    assert all(row["first_version"] == max(0, row["step"] - 2) for row in rows)
    reasons = {row["reason"] for row in read_chunks(ahead.dir).to_pylist()}
    assert reasons <= {"ranked", "intra-step", "inter-step"}
    assert len(ahead.metric("eval/accuracy")) == 3


def test_the_journal_of_a_pipelined_run_replays(ahead):
    [segment] = read_journal(ahead.dir / "journal.jsonl")
    assert replay(segment, build_planner("histopipe", chunk_tokens=16, seed=0)) is None


@pytest.mark.slow
def test_plain_schedulers_draw_the_same_tokens_a_step_ahead(tmp_path, model):
    """Nothing migrates between versions: whatever the timing, the same tokens and weights."""
    runs = [
        train(tmp_path / str(number), model, PPO, **AHEAD | {"rollout__scheduler": scheduler, "run__steps": 3})
        for number, scheduler in enumerate(("divided", "context", "histopipe"))
    ]
    assert [run.code for run in runs] == [0, 0, 0], [run.output for run in runs]
    assert len({tuple(run.metric("rollout/tokens_crc32")) for run in runs}) == 1
    assert len({run.model(3) for run in runs}) == 1


@pytest.mark.slow
def test_a_killed_run_trains_on_every_group_once(tmp_path, model):
    kept = AHEAD | {"run__checkpoint_every": 1, "run__keep_checkpoints": 9}
    with training(tmp_path / "run", model, PPO, **kept) as (process, run):
        status = wait_for(process, run, lambda status: status.step >= 3)
        os.kill(pid_of(status, "controller"), signal.SIGKILL)
        finish(process, run)
    assert run.code != 0
    again = train(tmp_path / "run", model, PPO, **kept)
    assert again.code == 0, again.output
    assert "continuing from" in again.output
    assert "no prompt has a history yet" not in again.output
    check(again)
