from dataclasses import replace

import numpy as np
import pytest

from sestina.config.load import load
from sestina.controller.feed import Feed
from sestina.controller.materials import Materials
from sestina.controller.recorded import RecordedLengths, forced_lengths, recorded_lengths
from sestina.core.errors import DataError
from sestina.core.ids import EVAL_GROUPS
from sestina.data.prompt import Prompt
from sestina.telemetry.traces import write_step
from tests.unit.config.helpers import composed
from tests.unit.telemetry.helpers import Rollouts

PROMPT_TOKENS = 20
"""Of every prompt of the recording."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two steps of two groups of three, as a run leaves them; returns its directory and {(step, group, sample)}."""
    folder, rollouts, lengths = tmp_path_factory.mktemp("recorded"), Rollouts(), {}
    for step in (1, 2):
        requests, chunks = rollouts.step(step, num_groups=2, samples=3)
        requests = [replace(row, finish="length") if row.sample == 1 else row for row in requests]
        write_step(folder, step, requests, chunks)
        lengths |= {(row.step, row.group, row.sample): row.response_tokens for row in requests}
    return folder, lengths


def config_of(folder, *changes, key="lengths_from"):
    sizes = ("algorithm.batch_size=6", "algorithm.group_size=3", "run.steps=2", "eval.every=0")
    return load(composed("+exp=quickstart", "rollout=oracle", f"rollout.{key}={folder}", *sizes, *changes))


def feed_of(config, prompt_tokens=PROMPT_TOKENS):
    prompts = [Prompt(id=str(n), text="", tokens=np.arange(prompt_tokens), label=n, meta={}) for n in range(7)]
    lengths, forced = recorded_lengths(config), forced_lengths(config)
    materials = Materials(
        shape=None, tokenizer=None, prompts=prompts, eval_prompts=prompts[:2], lengths=lengths, forced=forced
    )
    return Feed(config, materials)


def test_offers_carry_the_recorded_lengths(recorded):
    folder, lengths = recorded
    feed = feed_of(config_of(folder))
    for step in (1, 2):
        offer = feed.draw(step)
        assert offer.lengths == tuple(
            tuple(lengths[step, group, sample] for sample in range(3)) for group, _ in offer.groups
        )
        assert {sample.stop_at for sample in offer.samples(0.0)} == {0}, "ordered by them, and free"
    assert feed.held_out(2).lengths == ((), ()), "not recorded"


def test_samples_are_held_to_the_recorded_lengths(recorded):
    folder, lengths = recorded
    feed = feed_of(config_of(folder, key="forced_lengths_from"))
    for step in (1, 2):
        offer = feed.draw(step)
        for sample in offer.samples(0.0):
            tokens = lengths[step, sample.id.group, sample.id.sample]
            cut = sample.id.sample == 1
            assert (sample.stop_at, sample.max_new_tokens) == ((tokens + 1, tokens) if cut else (tokens, 400))
        assert {spec.max_new_tokens for spec in offer.specs()} == {400}, "the planner is not told"
        assert offer.lengths[0], "the oracle may order by the same recording"
    assert {sample.stop_at for sample in feed.held_out(2).samples(0.0)} == {0}


def test_held_out_prompts_have_lengths_of_their_own_at_each_step():
    lengths = RecordedLengths([(0, EVAL_GROUPS, 0, 9, 5, "stop"), (10, EVAL_GROUPS, 0, 9, 7, "stop")])
    found = [[length.tokens for length in lengths.of(step, EVAL_GROUPS, 1, 9)] for step in (0, 5, 10)]
    assert found == [[5], [], [7]]


@pytest.mark.parametrize(
    ("change", "missing"),
    [("run.steps=3", "group 4 of step 3"), ("algorithm.batch_size=9", "group 2 of step 1")],
)
def test_a_recording_that_is_too_small_is_refused_before_the_start(recorded, change, missing):
    with pytest.raises(DataError, match=f"its traces lack {missing}, which rollout.scheduler 'oracle' needs"):
        recorded_lengths(config_of(recorded[0], change))
    forced = config_of(recorded[0], change, key="forced_lengths_from")
    with pytest.raises(DataError, match=f"its traces lack {missing}, which rollout.forced_lengths_from needs"):
        forced_lengths(forced)


def test_a_recording_of_other_prompts_is_refused(recorded):
    with pytest.raises(DataError, match=r"step 1 has a prompt of 20 tokens there and of 21 here; allowed is"):
        feed_of(config_of(recorded[0], key="forced_lengths_from"), PROMPT_TOKENS + 1).draw(1)


def test_a_response_longer_than_allowed_is_refused(recorded):
    longest = max(recorded[1].values())
    config = config_of(recorded[0], f"rollout.max_new_tokens={longest - 1}", key="forced_lengths_from")
    with pytest.raises(DataError, match=f"has {longest} tokens; allowed are {longest - 1}"):
        forced_lengths(config)


def test_a_directory_without_traces_is_refused(tmp_path):
    with pytest.raises(DataError, match="absent: no such run directory or Parquet file"):
        recorded_lengths(config_of(tmp_path / "absent"))


def test_other_schedulers_read_nothing(tmp_path):
    config = config_of(tmp_path / "absent", "rollout.scheduler=context")
    assert recorded_lengths(config).of(1, 0, 3, 20) == ()
