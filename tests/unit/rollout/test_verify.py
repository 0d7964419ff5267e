"""Drafts change no token, whatever is drafted and however much of it is right."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sestina.core.noise import request_key
from sestina.core.records import NO_TURN
from sestina.rollout.drafts import Drafts
from sestina.rollout.ops_torch import TorchOps
from sestina.rollout.verify import verify
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs, same

STOP, TURN = 1, 2


@st.composite
def cases(draw):
    """Drafts of some requests over three tokens, and the draws after every prefix of each."""
    longest = draw(st.integers(0, 4))
    counts = draw(st.lists(st.integers(0, longest), min_size=1, max_size=5))
    tokens = np.array(draw(rows_of(len(counts), longest)), np.int32).reshape(len(counts), longest)
    drawn = draw(st.lists(st.integers(0, 2), min_size=sum(counts) + len(counts), max_size=sum(counts) + len(counts)))
    room = draw(st.lists(st.integers(1, 6), min_size=len(counts), max_size=len(counts)))
    return Drafts(tokens, np.array(counts, np.int32)), np.array(drawn, np.int32), np.array(room, np.int32)


def rows_of(rows, width):
    row = st.lists(st.integers(0, 2), min_size=width, max_size=width)
    return st.lists(row, min_size=rows, max_size=rows)


@given(cases())
def test_what_is_gained_is_what_one_at_a_time_would_draw(case):
    drafts, drawn, room = case
    logprobs = -np.arange(len(drawn), dtype=np.float32)
    turns = np.where(np.arange(len(room)) % 2, TURN, NO_TURN)
    found = verify(drafts, drawn, logprobs, room, STOP, turns)
    tokens, chosen, start, at = [], [], 0, 0
    for i, count in enumerate(drafts.counts):
        gained, accepted = 0, 0
        for j in range(count + 1):
            tokens.append(drawn[start + j])
            chosen.append(logprobs[start + j])
            gained += 1
            right = j < count and drafts.tokens[i, j] == drawn[start + j]
            accepted += bool(right)
            if not right or drawn[start + j] in (STOP, turns[i]) or gained == room[i]:
                break
        assert (found.counts[i], found.accepted[i]) == (gained, accepted)
        start += count + 1
        at += gained
    np.testing.assert_array_equal(found.tokens, tokens)
    np.testing.assert_array_equal(found.logprobs, chosen)


@given(st.data())
def test_a_tree_is_followed_from_its_root(data):
    """Against walking down by hand; also what each row sees, and how deep it is."""
    longest = data.draw(st.integers(1, 8))
    counts = data.draw(st.lists(st.integers(0, longest), min_size=1, max_size=4))
    parents = [[data.draw(st.integers(-1, i - 1)) for i in range(longest)] for _ in counts]
    tokens = np.array(data.draw(rows_of(len(counts), longest)), np.int32).reshape(len(counts), longest)
    drafts = Drafts(tokens, np.array(counts, np.int32), np.array(parents, np.int32))
    size = sum(counts) + len(counts)
    drawn = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)), np.int32)
    found = verify(drafts, drawn, np.zeros(size, np.float32), np.full(len(counts), 99, np.int32), stop_token=-1)
    branches, depths = drafts.branches(), drafts.depths()
    assert branches is not None
    start, gained = 0, []
    for i, count in enumerate(counts):
        at, path = -1, [0]
        while True:
            gained.append(drawn[start + at + 1])
            following = [j for j in range(count) if parents[i][j] == at and tokens[i, j] == gained[-1]]
            if not following:
                break
            at = following[0]
            path.append(at + 1)
        assert found.path[i, : found.counts[i]].tolist() == path
        assert found.accepted[i] == len(path) - 1
        for row in range(count + 1):
            line, j = [], row - 1
            while j >= 0:
                line.insert(0, j + 1)
                j = parents[i][j]
            seen = branches.cells[branches.offsets[start + row] : branches.offsets[start + row + 1]]
            assert seen.tolist() == line
            assert depths[start + row] == len(line)
        start += count + 1
    np.testing.assert_array_equal(found.tokens, gained)


class Foresight:
    """Drafts from responses that are known beforehand, with mistakes: as right as it is asked to be."""

    def __init__(self, requests, results, *, seed, rightness, longest, trees=False):
        self.rng = np.random.default_rng(seed)
        self.rightness, self.longest, self.trees = rightness, longest, trees
        self.responses = {request_key(5, r.id): np.concatenate([r.prompt, results[r.id][0]]) for r in requests}

    def rests(self):
        return False

    def propose(self, table, slots, most):
        return self.grow_trees(table, slots, most) if self.trees else self.draw_lines(table, slots, most)

    def grow_trees(self, table, slots, most):
        """Every node hangs on any earlier one, and where that is right it may be right itself."""
        shape = (len(slots), self.longest)
        parents = np.zeros(shape, np.int32)
        drafts = Drafts(np.zeros(shape, np.int32), np.zeros(len(slots), np.int32), parents)
        for i, slot in enumerate(slots):
            rest = self.responses[int(table.keys[slot])][table.length[slot] :]
            drafts.counts[i] = self.rng.integers(0, max(0, min(most[i], self.longest)) + 1)
            right = {-1: 0}  # node -> its depth
            for j in range(drafts.counts[i]):
                parent = int(self.rng.choice(list(right))) if self.rng.random() < 0.8 else int(self.rng.integers(-1, j))
                parents[i, j] = parent
                drafts.tokens[i, j] = self.rng.integers(0, 60)
                depth = right.get(parent, len(rest))
                if depth < len(rest) and self.rng.random() < self.rightness:
                    drafts.tokens[i, j] = rest[depth]
                    right[j] = depth + 1
        return drafts

    def draw_lines(self, table, slots, most):
        drafts = Drafts(np.zeros((len(slots), self.longest), np.int32), np.zeros(len(slots), np.int32))
        for i, slot in enumerate(slots):
            rest = self.responses[int(table.keys[slot])][table.length[slot] :][: most[i]]
            count = self.rng.integers(0, min(len(rest), self.longest) + 1)
            wrong = self.rng.random(count) > self.rightness
            drafts.tokens[i, :count] = np.where(wrong, self.rng.integers(0, 60, count), rest[:count])
            drafts.counts[i] = count
        return drafts

    def begin(self, cost):
        """Nothing of this depends on weights."""

    def learn(self, table, outcome):
        """Nothing is learnt."""

    def leave(self, job, finish):
        """Nothing is kept."""


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 99),
    trees=st.booleans(),
    rightness=st.sampled_from([0.0, 0.6, 1.0]),
    longest=st.integers(1, 40),
    chunk=st.sampled_from([7, 200]),
    changes=st.sampled_from([{}, {"kv_capacity_tokens": 288}, {"max_step_tokens": 24}, {"max_running": 3}]),
)
def test_any_draft_leaves_every_bit_alone(temperature, seed, trees, rightness, longest, chunk, changes):
    """Tokens and logprobs, with few pages (preemption), few rows, few slots, and in chunks."""
    shape = make_shape(vocab_size=60)
    requests = make_requests(shape, groups=4, samples=2, temperature=temperature)
    plain = outputs(finish(make_engine(shape, lively_weights(shape)), requests))
    drafter = Foresight(requests, plain, seed=seed, rightness=rightness, longest=longest, trees=trees)
    engine = make_engine(shape, lively_weights(shape), speculator=drafter, **changes)
    assert same(finish_in_chunks([engine], requests, chunk), plain)
    assert engine._pool.check_integrity() is None
    assert engine._pool.num_available == engine._pool.num_pages


@pytest.mark.parametrize("trees", [False, True])
def test_kernels_of_any_device_verify_as_native_ones(trees):
    """Their sums round otherwise, so logprobs are close, and near-ties may part; these have none."""
    shape = make_shape(vocab_size=60)
    requests = make_requests(shape, groups=4, samples=2)
    plain = finish(make_engine(shape, lively_weights(shape)), requests)
    drafter = Foresight(requests, outputs(plain), seed=3, rightness=0.7, longest=12, trees=trees)
    portable = make_engine(shape, lively_weights(shape), speculator=drafter)
    portable._ops = portable._model._ops = TorchOps(shape, max_positions=256, device=torch.device("cpu"))
    found = finish(portable, requests)
    for id, result in found.items():
        np.testing.assert_array_equal(result.tokens, plain[id].tokens)
        np.testing.assert_allclose(result.logprobs, plain[id].logprobs, atol=1e-5)
    assert sum(result.accepted_tokens for result in found.values()) > 100


def test_right_drafts_save_steps():
    shape = make_shape(vocab_size=60)
    requests = make_requests(shape, groups=2, samples=2)
    plain = finish(make_engine(shape, lively_weights(shape)), requests)
    drafter = Foresight(requests, outputs(plain), seed=1, rightness=1.0, longest=8)
    engine = make_engine(shape, lively_weights(shape), speculator=drafter)
    drafter.rng = np.random.default_rng(0)
    found = finish(engine, requests)
    assert same(outputs(found), outputs(plain))
    assert all(result.accepted_tokens == result.drafted_tokens for result in found.values())
    load = engine.load()
    assert load.decoded_tokens == sum(len(result.tokens) for result in plain.values())
    longest = max(len(result.tokens) for result in plain.values())
    assert load.steps < longest / 2


def test_a_stop_token_in_a_draft_ends_the_response():
    shape = make_shape(vocab_size=60)
    requests = make_requests(shape, max_new_tokens=180)
    plain = finish(make_engine(shape, lively_weights(shape)), requests)
    assert any(result.finish == "stop" for result in plain.values())
    longer = {
        id: (np.append(result.tokens, np.arange(9, dtype=np.int32)), result.logprobs) for id, result in plain.items()
    }
    drafter = Foresight(requests, longer, seed=2, rightness=1.0, longest=12)
    engine = make_engine(shape, lively_weights(shape), speculator=drafter)
    found = finish(engine, requests)
    assert same(outputs(found), outputs(plain))
    assert {id: r.finish for id, r in found.items()} == {id: r.finish for id, r in plain.items()}
    assert dataclasses.asdict(engine.load())["running"] == 0
