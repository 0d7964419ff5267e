"""Stopping and continuing loses nothing: the weights are those of a run that never stopped, bit for bit."""

import os
import re
import signal

import pyarrow.compute as pc
import pytest

from sestina.telemetry.journal import read_journal
from sestina.telemetry.traces import read_chunks, read_requests
from tests.integration.worlds import SLOWLY, finish, halfway, pid_of, slowed, small_model, train, training, wait_for

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("straight") / "run", model, run__steps=4, eval__every=2)
    assert run.code == 0, run.output
    return run


def assert_equal_runs(run, straight):
    assert run.metric("rollout/tokens_crc32") == straight.metric("rollout/tokens_crc32")
    assert run.metric("eval/accuracy") == straight.metric("eval/accuracy")
    assert run.metric("train/grad_norm") == straight.metric("train/grad_norm")
    assert run.model(4) == straight.model(4)
    key = ["step", "group", "sample", "response_tokens", "reward"]
    assert read_requests(run.dir).select(key).equals(read_requests(straight.dir).select(key))


def test_two_steps_and_two_more_are_four(tmp_path, model, straight):
    first = train(tmp_path / "run", model, run__steps=2, eval__every=2)
    assert first.code == 0, first.output
    second = train(tmp_path / "run", model, run__steps=4, eval__every=2)
    assert second.code == 0, second.output
    assert "continuing from" in second.output
    assert_equal_runs(second, straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_in_mid_run_saves_and_leaves_and_the_same_command_continues(tmp_path, model, straight, number):
    with training(tmp_path / "run", model, run__steps=4, eval__every=2) as (process, run):
        wait_for(process, run, lambda status: status.step >= 1)
        process.send_signal(number)
        finish(process, run)
    assert run.code == 0, run.output
    assert "the same command continues" in run.output
    assert not list(run.dir.glob("checkpoints/*.partial"))
    again = train(tmp_path / "run", model, run__steps=4, eval__every=2)
    assert again.code == 0, again.output
    assert_equal_runs(again, straight)


def test_a_stop_in_the_middle_of_a_rollout_loses_no_token(tmp_path, model, straight):
    """What was generated is kept, and the next start begins there: with other instances and other chunks even."""
    changes = {"run__steps": 4, "eval__every": 2}
    with training(tmp_path / "run", model, **changes, **SLOWLY) as (process, run):
        with slowed(run.dir):
            wait_for(process, run, lambda status: status.step == 2 and halfway(status.phase))
            process.send_signal(signal.SIGINT)
        finish(process, run)
    assert run.code == 0, run.output
    [kept] = map(int, re.findall(r"(\d+) tokens of step 3 are kept", run.output))
    assert kept > 0
    again = train(tmp_path / "run", model, rollout__num_instances=2, rollout__chunk_tokens=9, **changes)
    assert again.code == 0, again.output
    assert again.metric("rollout/restored_tokens") == [0, 0, kept, 0]
    [offered] = [entry.event for entry in last_segment(run) if getattr(entry.event, "begun", ())]
    assert sum(begun.generated_tokens for begun in offered.begun) == kept
    restored = read_chunks(run.dir).filter(pc.field("restored"))
    assert set(restored["step"].to_pylist()) == {3}
    assert sum(restored["tokens"].to_pylist()) == kept
    assert not (run.dir / "unfinished.msgpack").exists()
    assert_equal_runs(again, straight)


def last_segment(run):
    *_, last = read_journal(run.dir / "journal.jsonl")
    return last.entries


def test_a_killed_controller_loses_at_most_the_steps_since_the_last_checkpoint(tmp_path, model, straight):
    changes = {"run__steps": 4, "eval__every": 2, "run__checkpoint_every": 1}
    with training(tmp_path / "run", model, **changes) as (process, run):
        status = wait_for(process, run, lambda status: status.step >= 2)
        os.kill(pid_of(status, "controller"), signal.SIGKILL)
        finish(process, run)
    assert run.code != 0
    again = train(tmp_path / "run", model, **changes)
    assert again.code == 0, again.output
    assert "continuing from" in again.output
    assert not list(run.dir.glob("checkpoints/*.partial"))
    assert_equal_runs(again, straight)


def test_a_finished_run_says_so(model, straight):
    run = train(straight.dir, model, run__steps=4, eval__every=2)
    assert run.code == 0
    assert "has taken all 4 steps already" in run.output


def test_a_checkpoint_of_another_configuration_is_refused(model, straight):
    before = {path: path.stat().st_mtime_ns for path in straight.dir.rglob("*")}
    run = train(straight.dir, model, run__steps=5, eval__every=2, algorithm__clip_low=0.1)
    assert run.code == 2
    assert "is of another configuration" in run.output
    assert "algorithm.clip_low: 0.2 -> 0.1" in run.output
    assert {path: path.stat().st_mtime_ns for path in straight.dir.rglob("*")} == before


def test_resume_never_refuses_a_directory_that_holds_a_run(model, straight):
    run = train(straight.dir, model, run__steps=4, eval__every=2, resume="never")
    assert run.code == 2
    assert "holds a run; resume=auto continues it" in run.output
