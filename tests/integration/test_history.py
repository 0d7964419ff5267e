"""Drafts from the last epoch, over runs whose every step is an epoch: tokens as ever, and drafts accepted."""

import pytest

from tests.integration.worlds import ROOT, train

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

EPOCH = {"data__num_prompts": 8, "run__steps": 2, "run__checkpoint_every": 1}
"""Eight groups of four are a batch: each prompt is asked once a step."""

EAGER = {
    "draft__length": "fixed",
    "draft__toggle": "always",
    "draft__guard": "false",
    "draft__max_tokens": 8,
    "draft__min_token_prob": 0,
}
HISTORY = {"draft": "history", **EPOCH, **EAGER}


@pytest.fixture(scope="module")
def model():
    """The quickstart's, which answers a prompt much as it did the last time."""
    return ROOT / "assets/sums"


@pytest.fixture(scope="module")
def plain(tmp_path_factory, model):
    return finished(train(tmp_path_factory.mktemp("plain") / "run", model, **EPOCH))


@pytest.fixture(scope="module")
def history(tmp_path_factory, model):
    return finished(train(tmp_path_factory.mktemp("history") / "run", model, **HISTORY))


def finished(run):
    assert run.code == 0, run.output
    return run


def kept(run, step):
    return run.dir / f"checkpoints/step_{step:06d}/history"


def assert_same_tokens(run, other):
    assert run.metric("rollout/tokens_crc32") == other.metric("rollout/tokens_crc32")
    assert run.model(2) == other.model(2)


def test_what_the_last_epoch_said_is_drafted_and_no_token_changes(history, plain):
    assert_same_tokens(history, plain)
    first, second = history.metric("spec/history/accepted_tokens")
    assert first == 0
    assert second > 0
    assert history.metric("spec/accepted_tokens") == [first, second]
    assert history.metric("spec/history/prompts") == [8, 8]
    assert history.metric("spec/history/prompts_lost") == history.metric("spec/history/refused") == [0, 0]


def test_a_resumed_run_drafts_from_what_its_checkpoint_holds(tmp_path, model, plain, history):
    """With next to no memory: what is kept then lies on the disk, and is gone when the run has ended."""
    changes = HISTORY | {"draft__history_bytes": 300}
    finished(train(tmp_path / "run", model, **changes | {"run__steps": 1}))
    run = finished(train(tmp_path / "run", model, **changes))
    assert "continuing from" in run.output
    assert_same_tokens(run, plain)
    assert run.metric("spec/history/accepted_tokens")[1] > 0
    assert min(run.metric("spec/history/prompts_on_disk")) > 0
    assert not (run.dir / "history").exists()
    for step in (1, 2):
        assert kept(run, step).read_bytes() == kept(history, step).read_bytes()


def test_a_damaged_history_is_dropped_said_and_counted(tmp_path, model, plain):
    """The other prompts keep theirs; both sources together draft the rest."""
    first = finished(train(tmp_path / "run", model, **HISTORY | {"run__steps": 1}))
    raw = bytearray(kept(first, 1).read_bytes())
    raw[-1] ^= 1
    kept(first, 1).write_bytes(raw)
    run = finished(train(tmp_path / "run", model, **HISTORY | {"draft": "grouped_history"}))
    assert "damaged or cut short; 1 prompts begin without a history" in run.output
    assert run.metric("spec/history/prompts_lost") == [0, 1]
    assert_same_tokens(run, plain)
    assert run.metric("spec/history/accepted_tokens")[1] > 0
    sources = (run.metric(f"spec/{source}/accepted_tokens")[-1] for source in ("grouped", "history"))
    assert sum(sources) == run.metric("spec/accepted_tokens")[1]
