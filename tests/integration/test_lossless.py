"""Scheduling changes no token and no weight: same seed, same batch hash, same bits after two steps."""

import pytest

from sestina.policies.planner import build_planner
from sestina.telemetry.journal import read_journal
from sestina.telemetry.replay import replay
from tests.integration.worlds import small_model, train

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def divided(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("divided") / "run", model, rollout__scheduler="divided")
    assert run.code == 0, run.output
    return run


VARIANTS = [
    {"rollout__scheduler": "group", "rollout__num_instances": 1, "rollout__engine__kv_capacity_tokens": 256},
    pytest.param({"rollout__scheduler": "group", "rollout__num_instances": 3}, marks=pytest.mark.slow),
    pytest.param({"rollout__chunk_tokens": 256, "rollout__num_instances": 1}, marks=pytest.mark.slow),
    pytest.param({"rollout__chunk_tokens": 5, "rollout__num_instances": 2}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_schedulers_instances_and_chunks_change_nothing(tmp_path, model, divided, variant):
    run = train(tmp_path / "run", model, **variant)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert run.model(2) == divided.model(2)


def test_the_runs_are_worth_comparing(divided):
    """Chunks were cut, rewards differed within groups, weights moved, and trainer and rollout agreed."""
    assert min(divided.metric("rollout/chunks")) > 64
    assert max(divided.metric("train/grad_norm")) > 0
    assert len(set(divided.metric("rollout/tokens_crc32"))) == 2
    assert all(value <= 1e-4 for value in divided.metric("train/train_rollout_logprob_abs_diff"))
    assert not any(divided.metric("rollout/preemptions"))


def test_the_journal_replays(divided):
    [segment] = read_journal(divided.dir / "journal.jsonl")
    assert len(segment.entries) > 128
    assert replay(segment, build_planner("divided", chunk_tokens=16, seed=0)) is None
    assert replay(segment, build_planner("divided", chunk_tokens=17, seed=0)) is not None
