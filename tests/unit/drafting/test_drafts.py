"""What is drafted, and that it is drafted again."""

import numpy as np
import pytest
from hypothesis import given, settings

from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.errors import NotFoundError
from sestina.drafting.index import DraftSettings
from tests.unit.drafting.helpers import append, draft, index_of, tokens
from tests.unit.drafting.test_counts import histories, run


@pytest.fixture
def index():
    index = index_of(depth=8)
    index.start_group(0, tokens(50, 51))
    return index


def started(index, request, text, **kwargs):
    handle = index.start_request(0, request, **kwargs)
    append(index, handle, 0, text)
    return handle


def test_nothing_is_drafted_where_nothing_followed(index):
    handle = started(index, 0, [1, 2, 3])
    empty = draft(index, handle)
    assert (len(empty.token_ids), empty.score, empty.match_len) == (0, 0.0, 0)


def test_a_sibling_is_repeated_and_its_end_ends_the_draft(index):
    started(index, 0, [1, 2, 3, 4, 5])
    found = draft(index, started(index, 1, [9, 1, 2]))
    assert found.token_ids.tolist() == [3, 4, 5]
    assert found.parents.tolist() == [-1, 0, 1]
    assert found.probs.tolist() == [0.5, 0.5, 0.5]
    assert (found.score, found.match_len) == (1.5, 2)


def test_a_fork_takes_up_where_the_prompt_ends(index):
    started(index, 0, [1, 2])
    found = draft(index, index.start_request(0, 1))
    assert (found.token_ids.tolist(), found.match_len) == ([1, 2], 2)


def test_the_most_frequent_follower_is_drafted_until_it_is_too_unlikely(index):
    for request, text in enumerate([[1, 2, 3], [1, 2, 4], [1, 2, 4], [1, 5]]):
        started(index, request, text)
    handle = started(index, 9, [8, 1])
    found = draft(index, handle, own_weight=0)
    assert found.token_ids.tolist() == [2, 4]
    assert found.probs == pytest.approx([3 / 5, 3 / 5 * 2 / 3])
    assert draft(index, handle, own_weight=0, min_token_prob=0.5).token_ids.tolist() == [2]
    assert draft(index, handle, max_tokens=1).token_ids.tolist() == [2]
    assert draft(index, handle, max_tokens=0).token_ids.tolist() == []


def test_an_own_follower_counts_more(index):
    for request in range(3):
        started(index, request, [1, 2, 7])
    handle = started(index, 9, [1, 3, 1])
    assert draft(index, handle, max_tokens=1, own_weight=0).token_ids.tolist() == [2]
    assert draft(index, handle, max_tokens=1, own_weight=4).token_ids.tolist() == [3]


def test_a_response_without_weight_is_matched_but_not_drafted(index):
    silent = started(index, 0, [1, 2, 3], weight=0)
    assert draft(index, started(index, 1, [9, 1])).token_ids.tolist() == []
    started(index, 2, [1, 2, 4])
    append(index, silent, 3, [1])
    assert draft(index, silent).token_ids.tolist() == [2, 4]


@pytest.mark.parametrize("top_k", [1, 4])
def test_a_shorter_match_than_asked_for_drafts_nothing(index, top_k):
    started(index, 0, [1, 2, 3, 4, 5])
    for request in (1, 2, 3):
        started(index, request, [7, 3, 6, 9])
    handle = started(index, 9, [8, 2, 3], weight=0)
    assert draft(index, handle, top_k=1, own_weight=0).token_ids.tolist() == [6, 9]
    found = draft(index, handle, top_k=top_k, own_weight=0, min_match=2)
    assert (found.token_ids.tolist(), found.match_len) == ([4, 5], 2)
    assert draft(index, handle, top_k=top_k, own_weight=0, min_match=3).token_ids.tolist() == []


def test_a_reward_outweighs_numbers(index):
    started(index, 0, [1, 2], weight=5)
    for request in (1, 2, 3):
        started(index, request, [1, 3])
    assert draft(index, started(index, 9, [8, 1])).token_ids.tolist() == [2]


def test_a_tree_holds_the_likeliest_paths(index):
    for request, text in enumerate([[1, 2, 3], [1, 2, 4], [1, 2, 4], [1, 5]]):
        started(index, request, text)
    handle = started(index, 9, [8, 1])
    found = draft(index, handle, top_k=8, own_weight=0)
    paths = {path_to(found, i) for i in range(len(found.token_ids))}
    assert {(2,), (2, 4), (2, 3), (5,)} <= paths
    assert np.all(np.diff(found.probs) <= 1e-6)
    assert all(parent < i for i, parent in enumerate(found.parents))
    assert len(paths) == len(found.token_ids), "no path twice"
    assert found.score == pytest.approx(found.probs.sum())


def path_to(found, node):
    path = []
    while node >= 0:
        path.insert(0, int(found.token_ids[node]))
        node = found.parents[node]
    return tuple(path)


@pytest.mark.parametrize("top_k", [2, 3, 5])
def test_a_tree_has_at_most_top_k_paths(index, top_k):
    for request in range(6):
        started(index, request, [1, 10 + request, 20 + request])
    found = draft(index, started(index, 9, [8, 1]), max_tokens=32, top_k=top_k)
    leaves = set(range(len(found.token_ids))) - set(found.parents.tolist())
    assert len(leaves) == top_k


def test_shorter_suffixes_fill_a_budget(index):
    started(index, 0, [1, 2, 30])
    for request in range(1, 4):
        started(index, request, [5, 2, 40 + request])
    found = draft(index, started(index, 9, [7, 1, 2]), max_tokens=8, top_k=8)
    assert found.token_ids[0] == 30
    assert {41, 42, 43} <= set(found.token_ids.tolist())
    assert found.match_len == 2


def test_a_batch_is_the_drafts_one_by_one_on_any_number_of_threads(index):
    rng = np.random.default_rng(0)
    handles = np.array([started(index, r, rng.integers(0, 6, 60)) for r in range(50)])
    limits = rng.integers(0, 12, 50).astype(np.int32)
    for top_k in (1, 4):
        one = [draft(index, h, int(n), top_k=top_k) for h, n in zip(handles, limits, strict=True)]
        for threads in (1, 3):
            setting = DraftSettings(min_token_prob=0.0, top_k=top_k, threads=threads)
            batch = index.draft(handles, limits, setting)
            for row, alone in enumerate(one):
                found = batch.draft(row)
                assert found.token_ids.tolist() == alone.token_ids.tolist()
                assert found.parents.tolist() == alone.parents.tolist()
                assert found.probs.tolist() == alone.probs.tolist()
                assert (found.score, found.match_len) == (alone.score, alone.match_len)


def test_buffers_are_used_again(index):
    handle = started(index, 0, [1, 2, 1])
    buffers = DraftBuffers.for_batch(1, 8)
    settings_ = DraftSettings()
    assert index.draft(np.array([handle]), tokens(4), settings_, buffers) is buffers
    assert buffers.draft(0).token_ids.tolist()[:2] == [2, 1]


def test_a_rehearsal_is_what_decoding_would_have_been(index):
    started(index, 0, [1, 2, 3, 4, 5, 6])
    handle = index.start_request(0, 1)
    done = index.rehearse(handle, tokens(1, 2, 3, 9, 5, 6), 2, DraftSettings())
    # 1 and 2 are drafted, and 3 comes with them; 9 comes in place of a draft of 4; 5 after no draft; 6 is drafted.
    assert (done.num_tokens, done.num_steps) == (6, 4)
    assert index.fetch_since(0, 0).tokens.tolist()[-6:] == [1, 2, 3, 9, 5, 6]
    with pytest.raises(NotFoundError):
        index.rehearse(handle + 1, tokens(1), 2, DraftSettings())


def test_drafts_are_timed_one_by_one(index):
    handle = started(index, 0, [1, 2, 1])
    spans = index.time_drafts(np.array([handle] * 5), 8, DraftSettings())
    assert (spans.shape, bool(np.all(spans > 0))) == ((5,), True)
    with pytest.raises(NotFoundError):
        index.time_drafts(np.array([handle + 1]), 8, DraftSettings())


@settings(max_examples=150, deadline=None)
@given(histories())
def test_every_drafted_path_occurs_and_its_probability_falls(history):
    _, depth, prompt, weights, appends = history
    index, naive, handles = run(depth, prompt, weights, appends)
    for request, handle in enumerate(handles):
        text = naive.streams[request][0]
        linear = draft(index, handle, max_tokens=6)
        assert linear.parents.tolist() == list(range(-1, len(linear.token_ids) - 1))
        assert np.all(np.diff(linear.probs) <= 1e-6)
        for found in (linear, draft(index, handle, max_tokens=16, top_k=6)):
            assert found.match_len <= min(len(text), depth)
            if len(found.token_ids):
                match = text[len(text) - found.match_len :][-(depth - 1) :]
                assert naive.counts[(*match, int(found.token_ids[0]))] > 0
            assert np.all(found.probs > 0)
            assert np.all(found.probs <= 1)
