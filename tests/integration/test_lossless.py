"""Scheduling and drafting change no token and no weight: same seed, same batch hash, same bits after two steps."""

import subprocess
import sys
from collections import Counter

import pytest

from sestina.policies.events import BatchOffered
from sestina.policies.planner import build_planner
from sestina.telemetry.journal import read_journal
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.integration.worlds import LIMIT_S, ROOT, arguments, small_model, train

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def divided(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("divided") / "run", model, rollout__scheduler="divided")
    assert run.code == 0, run.output
    return run


@pytest.fixture(scope="module")
def context(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("context") / "run", model, rollout__scheduler="context")
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
    if "rollout__engine__kv_capacity_tokens" in variant:
        assert min(run.metric("rollout/preemptions")) > 0


def test_context_changes_the_order_and_nothing_else(divided, context):
    assert context.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert context.model(2) == divided.model(2)
    assert not any(context.metric("rollout/preemptions"))
    reasons = Counter(read_chunks(context.dir).column("reason").to_pylist())
    assert min(reasons[reason] for reason in ("probe", "longest-first", "least-served")) > 0
    assert set(reasons) == {"probe", "longest-first", "least-served"}


def test_the_journal_of_context_replays(context):
    [segment] = read_journal(context.dir / "journal.jsonl")
    assert replay(segment, build_planner("context", chunk_tokens=16, seed=0)) is None
    assert replay(segment, build_planner("divided", chunk_tokens=16, seed=0)) is not None


@pytest.mark.parametrize(
    "draft",
    [
        {"draft__source": "grouped", "draft__length": "fixed", "draft__guard": "false", "draft__min_token_prob": 0},
        {
            "draft__source": "quantized",
            "draft__length": "fixed",
            "draft__guard": "false",
            "draft__min_token_prob": 0,
            "draft__weight_group": 32,
        },
        pytest.param(
            {"draft__source": "self", "draft__length": "fixed", "draft__guard": "false", "draft__paths": 3},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_drafting_changes_the_steps_and_nothing_else(tmp_path, model, divided, draft):
    """Chunks of 16 tokens on three instances: texts come and go, and every instance drafts from what it has seen."""
    run = train(tmp_path / "run", model, **draft)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert run.model(2) == divided.model(2)
    assert min(run.metric("spec/accepted_tokens")) > 0
    assert max(divided.metric("spec/drafted_tokens")) == 0


@pytest.mark.slow
def test_the_oracle_orders_by_a_recorded_run_and_changes_nothing_else(tmp_path, model, divided):
    run = train(tmp_path / "run", model, rollout__scheduler="oracle", rollout__lengths_from=divided.dir)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert run.model(2) == divided.model(2)
    [segment] = read_journal(run.dir / "journal.jsonl")
    assert replay(segment, build_planner("oracle", chunk_tokens=16, seed=0)) is None
    rows = {(row["group"], row["sample"]): row["response_tokens"] for row in read_requests(divided.dir).to_pylist()}
    offers = [entry.event for entry in segment.entries if isinstance(entry.event, BatchOffered)]
    told = {(g.group, s): n for offer in offers for g in offer.groups for s, n in enumerate(g.lengths)}
    assert told == rows


def test_a_simulated_run_draws_the_same(tmp_path, model, divided):
    changes = {"rollout.num_instances": 7, "dir": tmp_path / "run", "run.steps": 1}
    command = [sys.executable, str(ROOT / "launch/simulate.py"), *arguments(tmp_path, model, changes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    [line] = read_metrics(tmp_path / "run")
    assert line.values["rollout/tokens_crc32"] == divided.metric("rollout/tokens_crc32")[0]


@pytest.mark.slow
def test_other_weights_held_to_the_recorded_lengths_do_as_much_work(tmp_path, model, divided):
    """A learning rate of its own makes step 2 one of other weights, which would end elsewhere."""
    forced = {"rollout__forced_lengths_from": divided.dir, "rollout__scheduler": "oracle"}
    run = train(tmp_path / "run", model, trainer__optimizer__learning_rate=0.05, **forced)
    assert run.code == 0, run.output
    before, after = (read_requests(folder).to_pylist() for folder in (divided.dir, run.dir))
    for name in ("group", "sample", "response_tokens", "finish"):
        assert [row[name] for row in after] == [row[name] for row in before]
    crc = run.metric("rollout/tokens_crc32")
    assert crc[0] == divided.metric("rollout/tokens_crc32")[0]
    assert crc[1] != divided.metric("rollout/tokens_crc32")[1]
    assert all(value <= 1e-4 for value in run.metric("train/train_rollout_logprob_abs_diff"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        {"trainer__tensor_parallel": 2, "trainer__sequence_parallel": True},
        {"trainer__distributed_optimizer": True},
    ],
    ids=["TP2 with sequence parallelism", "DP2 with distributed optimizer"],
)
def test_a_trainer_of_two_ranks_learns_the_same(tmp_path, model, divided, layout):
    run = train(tmp_path / "run", model, trainer__num_ranks=2, rollout__num_instances=1, **layout)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32")[0] == divided.metric("rollout/tokens_crc32")[0]
    assert run.metric("train/grad_norm")[0] == pytest.approx(divided.metric("train/grad_norm")[0], rel=1e-3)


@pytest.mark.slow
def test_failed_rewards_stay_out_of_the_loss_and_are_counted(tmp_path, model):
    path = {"reward__path": "tests.integration.rewards:moody"}
    run = train(tmp_path / "run", model, telemetry__wandb="offline", **path)
    assert run.code == 0, run.output
    failures = run.metric("rollout/reward_failures")
    assert failures == run.metric("train/uncounted_samples") == run.metric("rollout/reward_raised")
    assert min(failures) > 0
    rows = read_requests(run.dir).to_pylist()
    failed = [row for row in rows if row["reward"] is None]
    assert len(failed) == sum(failures)
    assert all("bad mood" in row["reward_error"] or "nan" in row["reward_error"] for row in failed)
    assert list(run.dir.glob("wandb/offline-run-*"))


@pytest.mark.slow
def test_a_batch_without_a_single_reward_trains_nothing_and_says_so(tmp_path, model):
    run = train(tmp_path / "run", model, reward__path="tests.integration.rewards:broken")
    assert run.code == 0, run.output
    assert run.metric("rollout/reward_failures") == [32, 32]
    assert run.metric("train/skipped_minibatches") == [2, 2]
    assert "reward -" in run.output


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
