"""The quickstart with a calculator, as a world of ranks: trained on, the same under another scheduler, and resumed."""

import signal

import numpy as np
import pytest

from sestina.config.resolved import read_resolved
from sestina.controller.plan import planner_of
from sestina.policies.events import Observed, TurnEnded
from sestina.telemetry.journal import read_journal
from sestina.telemetry.replay import replay
from tests.integration.worlds import ROOT, SLOWLY, finish, halfway, slowed, train, training, wait_for

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

BASE = ("+exp=quickstart_tools",)
MODEL = ROOT / "assets" / "sums"
CHANGES = {
    "reward.path": None,
    "rollout.max_new_tokens": 120,
    "rollout.num_instances": 2,
    "algorithm.minibatches": 1,
    "data.num_prompts": 8,  # an epoch a step: the second has a history to draft from
    "eval.every": 2,
}


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    run = train(tmp_path_factory.mktemp("divided") / "run", MODEL, BASE, **CHANGES)
    assert run.code == 0, run.output
    return run


def test_two_steps_train_on_what_the_model_drew(divided):
    assert min(divided.metric("rollout/turns/mean")) > 2
    assert min(divided.metric("rollout/observed_tokens")) > 50
    assert divided.metric("rollout/environment_failures") == divided.metric("rollout/observations_cut") == [0, 0]
    observed, trained = divided.metric("rollout/observed_tokens"), divided.metric("train/response_tokens")
    lengths = np.array(divided.metric("rollout/response_len/mean")) * 32
    np.testing.assert_allclose(lengths, np.add(observed, trained))
    assert max(divided.metric("train/train_rollout_logprob_abs_diff")) < 1e-5
    assert all(0 < p50 <= p99 for p50, p99 in zip(
        divided.metric("rollout/pause_s/p50"), divided.metric("rollout/pause_s/p99"), strict=True))  # fmt: skip
    assert len(divided.metric("eval/accuracy")) == 2


def test_the_journal_holds_every_turn_and_replays(divided):
    config = read_resolved(divided.dir / "config.yaml")
    (segment,) = read_journal(divided.dir / "journal.jsonl")
    kinds = [type(entry.event) for entry in segment.entries]
    assert kinds.count(TurnEnded) == kinds.count(Observed) > sum(divided.metric("rollout/observations")) > 0
    assert replay(segment, planner_of(config)) is None


def test_another_scheduler_draws_the_same_tokens_and_trains_the_same_weights(tmp_path, divided):
    changes = {**CHANGES, "rollout.scheduler": "context", "rollout.chunk_tokens": 7, "rollout.affinity_requests": 0}
    run = train(tmp_path / "run", MODEL, BASE, **changes)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert run.model(2) == divided.model(2)


EAGER = {"draft.guard": "false", "draft.toggle": "always"}


@pytest.mark.parametrize("source", ["grouped_history", "quantized"])
def test_drafts_change_no_token(tmp_path, divided, source):
    run = train(tmp_path / "run", MODEL, (*BASE, f"draft={source}"), **CHANGES, **EAGER)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert min(run.metric("spec/accepted_tokens")) > 50


def test_a_pool_leaves_only_prompts_and_observations_to_prefill(tmp_path, divided):
    pool = {"rollout.kv_pool.move": "always", "rollout.kv_pool.dram_bytes": 1 << 26}
    run = train(tmp_path / "run", MODEL, (*BASE, "rollout/kv_pool=local"), **CHANGES, **pool)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    prompts = 32 * 24  # at most; a group's are shared where it is on one instance
    # The token that ends a turn, and what follows it, are computed when the request goes on.
    parts = np.add(run.metric("rollout/observed_tokens"), run.metric("rollout/chunks"))
    assert (np.array(run.metric("rollout/prefilled_tokens")) <= parts + prompts).all()
    assert (np.array(run.metric("rollout/prefilled_tokens")) < divided.metric("rollout/prefilled_tokens")).all()


def test_a_stop_in_the_middle_of_a_rollout_loses_no_token(tmp_path, divided):
    slowly = {key.replace("__", "."): value for key, value in SLOWLY.items()}
    with training(tmp_path / "run", MODEL, BASE, **{**CHANGES, **slowly}) as (process, run):
        with slowed(run.dir):
            wait_for(process, run, lambda status: halfway(status.phase))
            process.send_signal(signal.SIGINT)
        finish(process, run)
    assert run.code == 0, run.output
    assert "tokens of step 1 are kept" in run.output
    again = train(tmp_path / "run", MODEL, BASE, **CHANGES)
    assert again.code == 0, again.output
    assert again.metric("rollout/restored_tokens")[0] > 0
    assert again.metric("rollout/tokens_crc32") == divided.metric("rollout/tokens_crc32")
    assert again.model(2) == divided.model(2)
