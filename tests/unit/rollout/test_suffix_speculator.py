"""Drafts out of the index: every token is what it would be without, whatever source, policy and chunking."""

import dataclasses
import itertools

import numpy as np
import pytest

from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.costs import measure
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs, same

SHAPE = make_shape(vocab_size=60)
EAGER = DraftConfig(
    source="grouped",
    length="fixed",
    toggle="always",
    guard=False,
    max_tokens=8,
    paths=1,
    min_token_prob=0.0,
    thresholds_slack=0.5,
    aimd_start=2,
    aimd_step=2,
    history_bytes=1 << 24,
)


def dull_weights():
    """Weights whose greedy responses repeat themselves, and so can be drafted."""
    return {name: tensor * 0.7 for name, tensor in lively_weights(SHAPE).items()}


def drafting(config, **changes):
    speculator = SuffixSpeculator(config, vocab_size=SHAPE.vocab_size, num_slots=16)
    return make_engine(SHAPE, dull_weights(), speculator=speculator, **changes), speculator


@pytest.fixture(scope="module")
def requests():
    return make_requests(SHAPE, groups=4, samples=4, max_new_tokens=150, temperature=0.3)


@pytest.fixture(scope="module")
def plain(requests):
    return outputs(finish(make_engine(SHAPE, dull_weights()), requests))


CASES = [
    dataclasses.replace(EAGER, source=source, length=length, toggle=toggle, guard=guard, paths=paths)
    for (source, paths), (length, toggle, guard) in itertools.product(
        [("self", 1), ("grouped", 1), ("grouped", 3)],
        [
            ("fixed", "always", False),
            ("mba", "roofline", True),
            ("aimd", "batch", False),
            ("ladder", "always", True),
            ("thresholds", "always", False),
        ],
    )
]


@pytest.mark.parametrize("config", CASES, ids=lambda c: f"{c.source}-{c.paths}-{c.length}-{c.toggle}-{c.guard}")
def test_no_policy_and_no_source_changes_a_token(config, requests, plain):
    engine, _ = drafting(config)
    assert same(outputs(finish(engine, requests)), plain)


class Watched(SuffixSpeculator):
    trees = 0

    def propose(self, table, slots, most):
        drafts = super().propose(table, slots, most)
        self.trees += drafts is not None and drafts.parents is not None
        return drafts


class Asked(SuffixSpeculator):
    times = 0

    def propose(self, table, slots, most):
        self.times += 1
        return super().propose(table, slots, most)


@pytest.mark.parametrize("first", [0, EVAL_GROUPS])
def test_after_a_decision_against_drafts_steps_pass_unasked_and_counted(first, requests, plain):
    """But for those of evaluations, which are not counted."""
    config, desk = dataclasses.replace(EAGER, length="mba", guard=True), DraftDesk()
    speculator = Asked(config, vocab_size=SHAPE.vocab_size, num_slots=16, desk=desk)
    engine = make_engine(SHAPE, dull_weights(), speculator=speculator)
    here = [dataclasses.replace(r, id=RequestId(first + r.id.group, r.id.sample)) for r in requests]
    finish(engine, here)
    taken, passes = desk.tally.take(), engine.load().steps
    if first:
        assert (taken.steps, taken.step_s) == ({}, 0.0)
        return
    assert taken.steps["rest"] > 0
    assert speculator.times == sum(taken.steps.values()) - taken.steps["rest"]
    assert 0 <= passes - sum(taken.steps.values()) < 10, "all but the first, which only prefill"
    assert taken.step_s > 0


def test_weights_that_come_while_steps_pass_leave_none_uncounted(requests):
    config, desk = dataclasses.replace(EAGER, length="mba", guard=True), DraftDesk()
    speculator = Asked(config, vocab_size=SHAPE.vocab_size, num_slots=16, desk=desk)
    engine = make_engine(SHAPE, dull_weights(), speculator=speculator, interruption="recompute")
    for request in requests:
        engine.submit(request)
    while not engine._rest.left:
        engine.step()
    for _ in range(3):
        engine.step()
    left = engine._rest.left
    engine.load_weights(1, dull_weights())
    taken = desk.tally.take()
    assert (left > 0, engine._rest.left) == (True, 0), "new weights are asked about"
    assert taken.steps["rest"] == 3
    assert speculator.times == sum(taken.steps.values()) - 3


def test_what_nobody_drafts_from_is_not_read():
    """A response that has ended before it was drafted for, where each has only itself to draft from."""
    short = make_requests(SHAPE, groups=4, samples=4, max_new_tokens=1)
    for source, groups in (("self", []), ("grouped", [0, 1, 2, 3])):
        engine, speculator = drafting(dataclasses.replace(EAGER, source=source))
        finish(engine, short)
        speculator._settle()
        assert speculator._index.groups == groups


@pytest.mark.parametrize("length", ["fixed", "aimd"])
def test_more_than_one_path_makes_trees(length, requests, plain):
    """Up to what the index drafts at once, however many paths of whatever length are asked for."""
    config = dataclasses.replace(EAGER, length=length, max_tokens=64, paths=3)
    speculator = Watched(config, vocab_size=SHAPE.vocab_size, num_slots=16)
    engine = make_engine(SHAPE, dull_weights(), speculator=speculator)
    assert same(outputs(finish(engine, requests)), plain)
    assert speculator.trees


@pytest.mark.parametrize("changes", [{}, {"kv_capacity_tokens": 512}, {"max_running": 3}])
def test_chunks_and_preemption_go_on_where_the_index_is(changes, requests, plain):
    engine, _ = drafting(EAGER, **changes)
    assert same(finish_in_chunks([engine], requests, 23), plain)


def test_new_weights_begin_with_an_empty_index(requests, plain):
    engine, speculator = drafting(EAGER)
    finish(engine, requests)
    assert speculator._index.groups
    engine.load_weights(1, dull_weights())
    assert not speculator._index.groups
    assert same(outputs(finish(engine, requests)), plain)


def test_requests_may_be_asked_again(requests, plain):
    """They come to have the rows they had, of which the index knows more than they have said."""
    engine, _ = drafting(EAGER)
    for _ in range(2):
        assert same(outputs(finish(engine, requests)), plain)


def test_a_group_drafts_for_its_own(requests):
    """With drafts from siblings, what repeats between responses is accepted, and steps are saved."""

    def accepted(source):
        alike = [dataclasses.replace(r, temperature=0.0, max_new_tokens=100) for r in requests]
        engine, _ = drafting(dataclasses.replace(EAGER, source=source), max_running=2)
        results = finish(engine, alike).values()
        return sum(r.accepted_tokens for r in results) / sum(len(r.tokens) for r in results), engine.load().steps

    (alone, steps_alone), (together, steps_together) = accepted("self"), accepted("grouped")
    assert together > max(alone, 0.6)
    assert steps_together < steps_alone


def test_an_abort_leaves_the_index_whole(requests):
    engine, speculator = drafting(EAGER)
    for request in requests:
        engine.submit(request)
    for _ in range(20):
        engine.step()
    engine.abort([request.id for request in requests[::2]])
    finish(engine, [])
    assert speculator._index.check_integrity() == ""


def test_a_full_index_ends_drafting_until_there_are_new_weights(requests, plain, caplog):
    desk = DraftDesk()
    speculator = SuffixSpeculator(
        EAGER, vocab_size=SHAPE.vocab_size, num_slots=16, memory_limit_bytes=60_000, desk=desk
    )
    engine = make_engine(SHAPE, dull_weights(), speculator=speculator)
    assert same(finish_in_chunks([engine], requests, 23), plain)
    assert desk.counts["index_full"] == 1
    engine.load_weights(1, dull_weights())
    drafted = sum(result.drafted_tokens for result in finish(engine, requests).values())
    assert drafted > 0
    assert desk.counts["index_full"] == 2
    assert caplog.text.count("nothing is drafted until there are new weights") == 1


@pytest.mark.parametrize(("step_s", "row_s"), [(4.0, 0.5), (0.0, 1.0)])
def test_costs_are_those_of_the_passes(monkeypatch, step_s, row_s):
    """Rows that cost a constant each, and a part that all share; time is what the passes say."""
    clock = itertools.count()
    now = [0.0]

    def run(rows):
        next(clock)
        now[0] += step_s + row_s * rows

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    cost = measure(run, 64)
    for batch, drafted in ((1, 0), (8, 24), (64, 0)):
        expected = step_s + row_s * (batch + drafted)
        assert cost.speculative_s(batch, 100, drafted=drafted, longest=8) == pytest.approx(expected)
    assert np.isclose(cost.plain_s(4, 100), step_s + 4 * row_s)


@pytest.mark.parametrize("paths", [1, 3])
def test_the_ladder_rises_with_rollouts_whose_drafts_are_accepted(paths):
    """Every rollout ends with new weights; greedy responses of a group are alike, so that nearly all is accepted."""
    alike = make_requests(SHAPE, groups=2, samples=8, max_new_tokens=100, temperature=0.0)
    engine, speculator = drafting(dataclasses.replace(EAGER, length="ladder", max_tokens=11, paths=paths))
    lengths = []
    for version in range(1, 5):
        finish(engine, alike)
        lengths.append(speculator._decisions.policy._lengths.length)
        engine.load_weights(version, dull_weights())
    assert lengths[0] == 5
    assert lengths[-1] > 5
