import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sestina.config.load import load
from sestina.controller.feed import Feed
from sestina.controller.materials import Materials
from sestina.controller.recorded import RecordedLengths
from sestina.core.errors import RunDirError
from sestina.core.ids import EVAL_GROUPS
from sestina.data.prompt import Prompt
from tests.unit.config.helpers import composed

CHECKPOINT = Path("runs/a/checkpoints/step_000002")


def prompts(count):
    return [Prompt(id=str(n), text=f"{n}=", tokens=np.arange(n + 1), label=n, meta={}) for n in range(count)]


@pytest.fixture(scope="module")
def config():
    return load(composed("+exp=quickstart", "algorithm.batch_size=6", "algorithm.group_size=2"))


def feed(config, train):
    free = {"lengths": RecordedLengths(), "forced": RecordedLengths()}
    return Feed(config, Materials(shape=None, tokenizer=None, prompts=train, eval_prompts=prompts(2), **free))


def drawn(offer):
    return [(group, prompt.id) for group, prompt in offer.groups]


def test_groups_are_numbered_through_and_put_back_whole(config):
    one = feed(config, prompts(7))
    first, second = one.draw(1), one.draw(2)
    assert [group for group, _ in drawn(first) + drawn(second)] == list(range(6))
    one.put_back()
    assert one.draw(2) == second
    assert (second.step, second.num_samples) == (2, 2)


def test_a_restored_feed_draws_what_the_saved_one_would_have(config):
    one, other = feed(config, prompts(7)), feed(config, prompts(7))
    one.draw(1)
    other.restore(one.state(), CHECKPOINT)
    assert drawn(other.draw(2)) == drawn(one.draw(2))


def test_held_out_prompts_have_groups_of_their_own(config):
    offer = feed(config, prompts(7)).held_out(3)
    assert drawn(offer) == [(EVAL_GROUPS, "0"), (EVAL_GROUPS + 1, "1")]
    assert (offer.num_samples, offer.temperature) == (1, config.eval.temperature)


@pytest.mark.parametrize(
    "changed",
    [
        prompts(6),
        [*prompts(6), dataclasses.replace(prompts(7)[6], label=0)],
        [*prompts(6), dataclasses.replace(prompts(7)[6], text="6 =")],
        prompts(7)[::-1],
    ],
    ids=["fewer", "label", "text", "order"],
)
def test_another_prompt_set_is_refused(config, changed):
    state = feed(config, prompts(7)).state()
    with pytest.raises(RunDirError, match="step_000002: made with another prompt set, of 7 prompts and digest"):
        feed(config, changed).restore(state, CHECKPOINT)
