"""Counts against a naive counter, whatever the order of appends."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.drafting.helpers import Naive, append, index_of, tokens


@st.composite
def histories(draw):
    """Alphabet, depth, prompt, weights of the requests, and appends to them in some order."""
    alphabet = draw(st.integers(2, 5))
    token = st.integers(0, alphabet - 1)
    weights = draw(st.lists(st.sampled_from([1, 1, 1, 0, 3]), min_size=1, max_size=4))
    appends = st.tuples(st.integers(0, len(weights) - 1), st.lists(token, max_size=12))
    return (
        alphabet,
        draw(st.integers(2, 7)),
        draw(st.lists(token, max_size=10)),
        weights,
        draw(st.lists(appends, max_size=25)),
    )


def run(depth, prompt, weights, appends, vocab_size=100):
    index, naive = index_of(depth=depth, vocab_size=vocab_size), Naive(depth, prompt)
    index.start_group(7, tokens(*prompt))
    handles, lengths = [], [0] * len(weights)
    for request, weight in enumerate(weights):
        handles.append(index.start_request(7, request, weight=weight))
        naive.start(request, weight)
    for request, new in appends:
        append(index, handles[request], lengths[request], new)
        naive.append(request, new)
        lengths[request] += len(new)
    return index, naive, handles


@settings(max_examples=300, deadline=None)
@given(histories())
def test_counts_are_those_of_a_naive_counter(history):
    alphabet, depth, prompt, weights, appends = history
    index, naive, _ = run(depth, prompt, weights, appends)
    for string, count in naive.counts.items():
        assert index.count(7, tokens(*string)) == count, string
    for string in product(range(alphabet), repeat=min(depth, 3)):
        assert index.count(7, tokens(*string)) == naive.counts[string]
    assert index.check_integrity() == ""


@settings(max_examples=30, deadline=None)
@given(st.integers(20, 70), st.integers(0, 2**32 - 1))
def test_states_with_many_followers_count_as_well(vocab_size, seed):
    rng = random.Random(seed)
    text = [min(rng.randrange(vocab_size), rng.randrange(vocab_size)) for _ in range(600)]
    index, naive, _ = run(3, text[:50], [1, 2], [(i % 2, text[k : k + 5]) for i, k in enumerate(range(50, 600, 5))])
    for string, count in naive.counts.items():
        assert index.count(7, tokens(*string)) == count
    assert index.check_integrity() == ""


@pytest.mark.parametrize("period", [1, 7, 50])
def test_a_loop_is_counted_exactly_and_adds_no_states(period):
    loop = list(range(period))
    index, naive, _ = run(24, [], [1], [(0, loop)] * (2000 // period))
    for string, count in naive.counts.items():
        assert index.count(7, tokens(*string)) == count
    before = index.num_bytes
    handle = index.find_request(7, 0)
    append(index, handle, len(loop) * (2000 // period), loop * (3000 // period))
    grown = index.num_bytes - before
    assert grown < 3000 * 10, "more than its text and its place in the log"
    assert index.check_integrity() == ""


def test_the_prompt_counts_once_and_responses_continue_it():
    index, _, _ = run(4, [1, 2, 3], [1, 1], [(0, [4]), (1, [4, 1])])
    assert index.count(7, tokens(1, 2, 3)) == 1
    assert index.count(7, tokens(2, 3, 4)) == 2
    assert index.count(7, tokens(3, 4, 1)) == 1


def test_a_count_is_a_sum_of_weights():
    index, _, _ = run(4, [], [5, 0, 1], [(0, [1, 2]), (1, [1, 2]), (2, [1, 3])])
    assert [index.count(7, tokens(1, follower)) for follower in (2, 3, 4)] == [5, 1, 0]


def test_counts_beyond_what_a_state_holds_itself():
    index, _, _ = run(4, [], [1 << 20, 1], [(0, [1, 2] * 20), (1, [1, 2, 1, 3])])
    assert index.count(7, tokens(1, 2)) == 20 * (1 << 20) + 1
    assert index.count(7, tokens(2, 1)) == 19 * (1 << 20) + 1
    assert index.check_integrity() == ""
