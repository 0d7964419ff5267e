"""Asynchronous training in a real world of ranks: eta = 0 is synchronous, bit for bit; above it, ages stay bounded."""

import os
import random
import re
import signal
import time
from functools import partial

import pytest

from sestina.controller.stream_state import read_stream
from sestina.policies.planner import build_planner
from sestina.telemetry.journal import read_journal
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.integration.worlds import BASE, finish, pid_of, slowed, small_model, train, training, wait_for

pytestmark = pytest.mark.mpi

ASYNC = {"run__mode": "async", "run__steps": 3}
STEPS, ETA = 5, 1
CHUNK_TOKENS = 400
AHEAD = {
    **ASYNC,
    "run__steps": STEPS,
    "async__max_staleness": ETA,
    "rollout__num_instances": 1,
    "rollout__max_new_tokens": CHUNK_TOKENS,
    "rollout__chunk_tokens": CHUNK_TOKENS,
    "rollout__engine__max_running": 2,
    "rollout__engine__kv_capacity_tokens": 2048,
    "algorithm__minibatches": 1,
}
"""Whole responses, few at a time: rollout takes longer than training, and weights come in the middle of some."""
KEPT = {**AHEAD, "run__checkpoint_every": 1, "run__keep_checkpoints": 9}
PPO = (*BASE, "algorithm=ppo")
KILLS, SEED = 10, 2026
LONG = {**KEPT, "run__steps": 60, "rollout__max_new_tokens": 120, "rollout__chunk_tokens": 50}
"""More steps than ten short lives can take."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ahead(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("ahead") / "run", model, PPO, **AHEAD)
    assert run.code == 0, run.output
    return run


def test_a_staleness_of_zero_is_synchronous_training_bit_for_bit(tmp_path, model):
    sync = train(tmp_path / "sync", model, run__steps=3, eval__every=3)
    zero = train(tmp_path / "zero", model, **ASYNC, async__max_staleness=0, eval__every=3)
    assert sync.code == zero.code == 0, sync.output + zero.output
    assert zero.metric("rollout/tokens_crc32") == sync.metric("rollout/tokens_crc32")
    assert zero.metric("eval/accuracy") == sync.metric("eval/accuracy")
    assert zero.model(3) == sync.model(3)
    assert zero.metric("async/staleness_max") == [0, 0, 0]
    assert not zero.metric("async/interruptions")[-1]


@pytest.mark.slow
def test_rollout_runs_ahead_within_the_bound_and_is_interrupted(ahead):
    check(ahead)
    assert max(ahead.metric("async/staleness_max")) > 0
    assert sum(ahead.metric("async/interruptions")) > 0
    assert max(ahead.metric("train/behaviour_weight")) != 1
    spans = [row for row in read_requests(ahead.dir).to_pylist() if row["first_version"] < row["last_version"]]
    assert spans


@pytest.mark.slow
def test_interrupted_responses_may_go_on_over_the_keys_and_values_of_older_weights(tmp_path, model):
    run = train(tmp_path / "run", model, PPO, **AHEAD, async__keep_kv=True)
    assert run.code == 0, run.output
    assert sum(run.metric("async/interruptions")) > 0
    assert max(run.metric("async/mixed_version_ratio")) > 0


def check(run, steps=STEPS, eta=ETA, batch_groups=8):
    """No group is trained on twice or left out, none too late, across all starts of the run; tokens are conserved."""
    assert max(run.metric("async/staleness_max")) <= eta
    assert max(run.metric("train/train_rollout_logprob_abs_diff"), default=0) < 1e-4
    rows = read_requests(run.dir).to_pylist()
    trained = [(row["group"], row["sample"]) for row in rows]
    assert len(set(trained)) == len(trained) == steps * batch_groups * 4
    assert {group for group, _ in trained} == set(range(steps * batch_groups))
    assert all(0 <= row["step"] - 1 - row["first_version"] <= eta for row in rows)
    tokens = sum(row["response_tokens"] for row in rows)
    assert run.metric("async/tokens_trained")[-1] == tokens == run.metric("async/tokens_generated")[-1]
    assert sum(row["tokens"] for row in read_chunks(run.dir).to_pylist()) == tokens


@pytest.mark.slow
def test_the_journal_of_overlapping_batches_replays(ahead):
    [segment] = read_journal(ahead.dir / "journal.jsonl")
    assert replay(segment, build_planner("divided", chunk_tokens=CHUNK_TOKENS, seed=0)) is None


@pytest.mark.slow
def test_a_killed_run_trains_on_every_group_once(tmp_path, model):
    with training(tmp_path / "run", model, PPO, **KEPT) as (process, run):
        status = wait_for(process, run, lambda status: status.step >= 2)
        os.kill(pid_of(status, "controller"), signal.SIGKILL)
        finish(process, run)
    assert run.code != 0
    again = train(tmp_path / "run", model, PPO, **KEPT)
    assert again.code == 0, again.output
    assert "continuing from" in again.output
    check(again)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_killed_at_ten_random_moments_trains_on_every_group_once(tmp_path, model):
    """Any rank of it, up to three steps and some time after its groups are under way."""
    moments, killed, taken = random.Random(SEED), set(), []
    for number in range(KILLS):
        with training(tmp_path / "run", model, PPO, **LONG) as (process, run):
            status = wait_for(process, run, partial(under_way, frozenset(killed)), limit_s=150)
            victim = moments.choice(status.ranks)
            killed |= {rank.pid for rank in status.ranks}
            wait_for(process, run, partial(has_taken, status.step + moments.randint(0, 3)))
            time.sleep(after_s := moments.uniform(0, 1.5))
            status = wait_for(process, run, lambda _: True)
            print(f"kill {number}: {victim.name}, after {after_s:.2f} s at step {status.step}: {status.phase}")
            os.kill(victim.pid, signal.SIGKILL)
            finish(process, run)
        assert run.code != 0, run.output
        taken.append(status.step)
    again = train(tmp_path / "run", model, PPO, **LONG)
    assert again.code == 0, again.output
    assert len(set(taken)) > 2, "the kills were at different steps"
    check(again, LONG["run__steps"])


def under_way(killed, status):
    """Whether a start of the run, and not the one before it, has groups open."""
    return "groups ended" in status.phase and killed.isdisjoint(rank.pid for rank in status.ranks)


def has_taken(step, status):
    return status.step >= step


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path, model):
    with training(tmp_path / "run", model, PPO, **KEPT) as (process, run):
        wait_for(process, run, lambda status: status.step >= 1)
        process.send_signal(signal.SIGINT)
        finish(process, run)
    assert run.code == 0, run.output
    again = train(tmp_path / "run", model, PPO, **KEPT)
    assert again.code == 0, again.output
    check(again)


@pytest.mark.slow
def test_a_run_stopped_before_its_first_step_keeps_what_it_has_generated(tmp_path, model):
    with training(tmp_path / "run", model, PPO, **KEPT) as (process, run):
        with slowed(run.dir):
            wait_for(process, run, lambda status: re.match("[1-7] groups ended", status.phase))
            process.send_signal(signal.SIGINT)
        finish(process, run)
    assert run.code == 0, run.output
    kept = read_stream(run.dir / "checkpoints/step_000000")
    tokens = sum(len(part.tokens) for sample in kept.samples for part in sample.parts)
    assert tokens == kept.tally.generated > 0
    again = train(tmp_path / "run", model, PPO, **KEPT)
    assert again.code == 0, again.output
    check(again)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rloo", "dapo", "gspo", "tis"])
def test_every_objective_trains(tmp_path, model, kind):
    changes = {**ASYNC, "run__steps": 2, "async__max_staleness": 1}
    changes |= {"algorithm__dynamic_sampling": "true"} if kind == "dapo" else {}
    run = train(tmp_path / "run", model, (*BASE, f"algorithm={kind}"), **changes)
    assert run.code == 0, run.output
    assert min(run.metric("train/grad_norm")) > 0
