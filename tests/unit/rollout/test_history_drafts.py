"""Drafts from what prompts were answered before: no token changes, and more is saved the better the history is."""

import dataclasses
import logging

import numpy as np
import pytest

from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.drafting.history.answers import Answers, to_record, weights_of
from sestina.drafting.settings import IndexSettings
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.history import HistoryDrafts
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs, same
from tests.unit.rollout.test_suffix_speculator import EAGER, SHAPE, dull_weights

HISTORY = dataclasses.replace(EAGER, source="history")


class Drafting:
    """An engine, its speculator and its desk."""

    def __init__(self, config, **changes):
        self.desk = DraftDesk()
        self.speculator = SuffixSpeculator(config, vocab_size=SHAPE.vocab_size, num_slots=16, desk=self.desk)
        self.engine = make_engine(SHAPE, dull_weights(), speculator=self.speculator, **changes)

    @property
    def history(self):
        return self.speculator._sources._history

    def take(self, requests, texts, rewards=None):
        """Hand over, for each group, what it was answered."""
        for group in sorted({request.id.group for request in requests}):
            asked = [request for request in requests if request.id.group == group]
            weights = weights_of(rewards or [0.0] * len(asked))
            answers = Answers(responses=tuple(texts[request.id][0] for request in asked), weights=weights)
            self.desk.take_history(group, asked[0].prompt, to_record(answers))
        self.history.settle()


@pytest.fixture(scope="module")
def requests():
    return make_requests(SHAPE, groups=4, samples=4, max_new_tokens=150, temperature=0.3)


@pytest.fixture(scope="module")
def plain(requests):
    return outputs(finish(make_engine(SHAPE, dull_weights()), requests))


CASES = [
    dataclasses.replace(EAGER, source=source, length=length, guard=guard, paths=paths, max_tokens=most)
    for source in ("history", "grouped+history")
    for length, guard, paths, most in (("fixed", False, 1, 8), ("aimd", True, 1, 32), ("thresholds", False, 3, 32))
]


@pytest.mark.parametrize("config", CASES, ids=lambda c: f"{c.source}-{c.length}-{c.guard}-{c.paths}")
def test_no_token_changes(config, requests, plain):
    drafting = Drafting(config)
    drafting.take(requests, plain, rewards=[1.0, 0.0, -1.0, 0.5])
    assert same(outputs(finish(drafting.engine, requests)), plain)
    assert drafting.history._index.check_integrity() == ""


@pytest.mark.parametrize("changes", [{}, {"kv_capacity_tokens": 512}, {"max_running": 3}])
@pytest.mark.parametrize("source", ["history", "grouped+history"])
def test_chunks_and_preemption_are_followed(source, changes, requests, plain):
    drafting = Drafting(dataclasses.replace(EAGER, source=source), **changes)
    drafting.take(requests, plain)
    assert same(finish_in_chunks([drafting.engine], requests, 23), plain)
    assert drafting.desk.tally.take().sources["history"].accepted_tokens > 0
    assert not (drafting.history._handles >= 0).any(), "nobody is followed who has left"


def test_what_was_said_before_is_what_is_saved(requests, plain):
    """A prompt that is answered as it was the last time takes few steps; one without a history takes all of them."""
    drafting = Drafting(HISTORY)
    drafting.take(requests[:8], plain)
    finish(drafting.engine, requests[:8])
    first = drafting.engine.load().steps
    finish(drafting.engine, requests[8:])
    assert drafting.engine.load().steps - first > 2 * first
    tally = drafting.desk.tally.take()
    of_history = tally.sources["history"]
    assert of_history.accepted_tokens > 0.5 * sum(len(plain[r.id][0]) for r in requests[:8])
    assert (tally.histories, tally.histories_dropped) == (2, 0)


def test_a_history_that_comes_late_is_taken_up(requests, plain):
    drafting = Drafting(HISTORY)
    for request in requests:
        drafting.engine.submit(request)
    results = [result for _ in range(30) for result in drafting.engine.step()]
    assert drafting.desk.tally.take().sources["history"].drafted_tokens == 0
    drafting.take(requests, plain)
    while not drafting.engine.idle:
        results += drafting.engine.step()
    assert same(outputs({result.id: result for result in results}), plain)
    assert drafting.desk.tally.take().sources["history"].accepted_tokens > 0


def test_counts_agree_with_the_chunks(requests, plain):
    """Of both sources together, those by place and by siblings included; evaluation stays out."""
    drafting = Drafting(dataclasses.replace(EAGER, source="grouped+history"))
    drafting.take(requests, plain)
    held_out = [dataclasses.replace(r, id=RequestId(EVAL_GROUPS + r.id.group, r.id.sample)) for r in requests[:6]]
    results = finish(drafting.engine, requests + held_out).values()
    results = [result for result in results if result.id.group < EVAL_GROUPS]
    tally = drafting.desk.tally.take()
    sources = tally.sources.values()
    assert sum(s.drafted_tokens for s in sources) == sum(r.drafted_tokens for r in results) > 0
    assert sum(s.accepted_tokens for s in sources) == sum(r.accepted_tokens for r in results) > 0
    for source in sources:
        assert sum(source.accepted) == source.accepted_tokens == sum(source.accepted_by_siblings) > 0
        assert sum(source.drafted_by_siblings) == source.drafted_tokens
        assert source.tried[1:] <= source.accepted[:-1]
        assert all(taken <= tried for taken, tried in zip(source.accepted, source.tried, strict=True))
    assert 0 < tally.draft_s < tally.step_s
    assert tally.steps["on"] > 0

    finish(drafting.engine, [dataclasses.replace(r, id=RequestId(r.id.group + 9, r.id.sample)) for r in held_out])
    assert not drafting.desk.tally.take().steps


def test_histories_go_with_the_weights_after_next(requests, plain):
    drafting = Drafting(HISTORY)
    drafting.take(requests, plain)
    drafting.engine.load_weights(1, dull_weights())
    assert drafting.history._index.groups == [0, 1, 2, 3]
    drafting.engine.load_weights(2, dull_weights())
    assert drafting.history._index.groups == []
    assert same(outputs(finish(drafting.engine, requests)), plain)


def test_a_damaged_history_is_said_and_counted_and_ends_nothing(requests, plain, caplog):
    drafting = Drafting(HISTORY)
    with caplog.at_level(logging.WARNING):
        for group in range(4):
            drafting.desk.take_history(group, requests[4 * group].prompt, b"no record at all")
        drafting.history.settle()
    assert same(outputs(finish(drafting.engine, requests)), plain)
    assert drafting.desk.tally.take().histories_dropped == 4
    assert len(caplog.records) == 1
    assert "group 0: its history is not drafted from" in caplog.text


def test_tokens_that_the_model_does_not_have_are_refused(requests):
    drafting = Drafting(HISTORY)
    alien = Answers(responses=(np.array([5, SHAPE.vocab_size], np.int32),), weights=(1,))
    drafting.desk.take_history(0, requests[0].prompt, to_record(alien))
    drafting.history.settle()
    assert drafting.history._index.groups == []
    assert drafting.desk.tally.take().histories_dropped == 1


@pytest.mark.parametrize("limit_bytes", [1, 100_000])
def test_a_full_index_drops_histories_and_ends_nothing(limit_bytes, requests, plain):
    drafting = Drafting(HISTORY)
    settings = IndexSettings(vocab_size=SHAPE.vocab_size, depth=8, memory_limit_bytes=limit_bytes)
    full = HistoryDrafts(settings, num_slots=16, tally=drafting.desk.tally)
    drafting.speculator._sources._history, drafting.desk.take_history = full, full.take
    drafting.take(requests, plain)
    assert same(outputs(finish(drafting.engine, requests)), plain)
    assert drafting.desk.tally.take().histories_dropped > 0
    assert drafting.history._index.check_integrity() == ""
