import pytest

from sestina.config.load import load
from sestina.controller.feed import Feed
from sestina.controller.materials import Materials
from sestina.controller.recorded import RecordedLengths, recorded_lengths
from sestina.core.errors import DataError
from sestina.core.ids import EVAL_GROUPS
from sestina.telemetry.traces import write_step
from tests.unit.config.helpers import composed
from tests.unit.controller.test_feed import prompts
from tests.unit.telemetry.helpers import Rollouts


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two steps of two groups of three, as a run leaves them; returns its directory and {(step, group, sample)}."""
    folder, rollouts, lengths = tmp_path_factory.mktemp("recorded"), Rollouts(), {}
    for step in (1, 2):
        requests, chunks = rollouts.step(step, num_groups=2, samples=3)
        write_step(folder, step, requests, chunks)
        lengths |= {(row.step, row.group, row.sample): row.response_tokens for row in requests}
    return folder, lengths


def config_of(folder, *changes):
    sizes = ("algorithm.batch_size=6", "algorithm.group_size=3", "run.steps=2", "eval.every=0")
    return load(composed("+exp=quickstart", "rollout=oracle", f"rollout.lengths_from={folder}", *sizes, *changes))


def test_offers_carry_the_recorded_lengths(recorded):
    folder, lengths = recorded
    config = config_of(folder)
    materials = Materials(
        shape=None, tokenizer=None, prompts=prompts(7), eval_prompts=prompts(2), lengths=recorded_lengths(config)
    )
    feed = Feed(config, materials)
    for step in (1, 2):
        offer = feed.draw(step)
        assert offer.lengths == tuple(
            tuple(lengths[step, group, sample] for sample in range(3)) for group, _ in offer.groups
        )
    assert feed.held_out(2).lengths == ((), ()), "not recorded"


def test_held_out_prompts_have_lengths_of_their_own_at_each_step():
    lengths = RecordedLengths([(0, EVAL_GROUPS, 0, 5), (10, EVAL_GROUPS, 0, 7)])
    assert [lengths.of(step, EVAL_GROUPS, 1) for step in (0, 5, 10)] == [(5,), (), (7,)]


@pytest.mark.parametrize(
    ("change", "missing"),
    [("run.steps=3", "group 4 of step 3"), ("algorithm.batch_size=9", "group 2 of step 1")],
)
def test_a_recording_that_is_too_small_is_refused_before_the_start(recorded, change, missing):
    with pytest.raises(DataError, match=f"its traces lack {missing}, which rollout.scheduler 'oracle' needs"):
        recorded_lengths(config_of(recorded[0], change))


def test_a_directory_without_traces_is_refused(tmp_path):
    with pytest.raises(DataError, match="lack group 0 of step 1"):
        recorded_lengths(config_of(tmp_path / "absent"))


def test_other_schedulers_read_nothing(tmp_path):
    config = config_of(tmp_path / "absent", "rollout.scheduler=context")
    assert recorded_lengths(config).of(1, 0, 3) == ()
