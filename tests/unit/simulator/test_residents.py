"""What several hold in common, against pages that are counted one by one."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.simulator.chunk import Chunk
from sestina.simulator.residents import FluidLimits, Residents
from sestina.simulator.siblings import Siblings
from sestina.telemetry.beginnings import Beginning, beginnings_of

PAGE = 4
texts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=2, max_size=5)
operations = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 9)), max_size=60)


def chunk(group, sample, siblings, *, prompt=6, tokens=100, generated=0):
    return Chunk(
        request=RequestId(group, sample), prompt_tokens=prompt, generated_tokens=generated, tokens=tokens,
        budget_tokens=tokens, done=False, submitted_s=0.0, siblings=siblings,
    )  # fmt: skip


def residents(page=PAGE):
    limits = FluidLimits(kv_capacity_tokens=10_000, max_running=9, page_tokens=page)
    return Residents(limits, lambda chunk: chunk.own_tokens)


def siblings_of(texts):
    return Siblings.of(beginnings_of([np.array(text, np.int32) for text in texts]), list(map(len, texts)), "here")


def counted(running, groups, page):
    """Each whole page once, whoever holds it; of each request what is in none, and half a page."""
    pages, apart = set(), 0.0
    for (group, sample), each in running.items():
        context = ["prompt"] * each.prompt_tokens + groups[group][sample][: int(each.produced)]
        whole = len(context) // page * page
        pages |= {(group, tuple(context[: end + page])) for end in range(0, whole, page)}
        apart += len(context) - whole + (page - 1) / 2
    return len(pages) * page + apart


@settings(max_examples=300, deadline=None)
@given(groups=st.tuples(texts, texts), operations=operations, page=st.sampled_from([1, PAGE]))
@example(
    groups=([[0], [0]], [[0]] * 3), operations=[(1, 0, 1), (1, 1, 0), (1, 2, 1)], page=1
)  # the middle has none yet
def test_what_siblings_begin_with_is_held_once(groups, operations, page):
    subject, running = residents(page), {}
    known = [siblings_of(group) for group in groups]
    for group, sample, tokens in operations:
        key = group, sample % len(groups[group])
        if key not in running:
            each = chunk(*key, known[group])
            each.produced = min(tokens, len(groups[group][key[1]]))
            subject.enter(each)
            running[key] = each
        elif tokens:
            grown = min(tokens, len(groups[group][key[1]]) - running[key].produced)
            running[key].produced += grown
            subject.grow(grown)
        else:
            subject.leave(running.pop(key))
        assert subject.held_tokens == counted(running, groups, page)
    for each in running.values():
        subject.leave(each)
    assert (subject.held_tokens, subject.shared_tokens) == (0, 0)


ALIKE = siblings_of([[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 0], [9]])


def test_a_request_finds_what_siblings_have_computed():
    subject, first = residents(), chunk(1, 0, ALIKE)
    subject.enter(first)
    first.produced = 5
    assert subject.enter(chunk(1, 1, ALIKE, generated=8)) == (6, 5)
    assert subject.enter(chunk(1, 2, ALIKE, generated=1)) == (6, 0)
    older = residents()
    first.kept_kv = True
    older.enter(first)
    assert older.enter(chunk(1, 1, ALIKE, generated=8))[1] == 0, "of older weights"
    other = residents()
    first.produced, first.kept_kv = 9, False
    other.enter(first)
    other.leave(first)
    other.release(first)
    assert other.enter(chunk(1, 1, ALIKE, generated=8)) == (6, 7), "left by one that nobody runs"
    assert residents().enter(chunk(1, 1, ALIKE, generated=8)) == (0, 0)


def test_a_complete_response_leaves_what_others_begin_with():
    subject = residents()
    for sample, most in ((0, 7), (2, 0)):
        each = chunk(1, sample, ALIKE)
        subject.enter(each)
        each.produced = 9
        subject.leave(each)
        subject.release(each, complete=True)
        assert subject.enter(chunk(1, sample, ALIKE, generated=9))[1] == most


def test_what_those_have_left_that_ran_counts_once():
    """The prompt, all of the first response, and of the second what it does not begin with as the first does."""
    subject = residents()
    for sample, texts in ((0, 9), (1, 8)):
        each = chunk(1, sample, ALIKE)
        subject.enter(each)
        each.produced = texts
        subject.leave(each)
        subject.release(each)
    assert subject._idle.total == 6 + 9 + 1


def test_a_number_that_comes_again_finds_no_more_than_it_has():
    subject, first = residents(), chunk(1, 0, ALIKE)
    subject.enter(first)
    first.produced = 9
    subject.leave(first)
    subject.release(first, complete=True)
    assert subject.enter(chunk(1, 0, ALIKE)) == (6, 0)


def test_what_a_recording_does_not_say_is_nothing_in_common():
    assert Siblings.of([Beginning(0, 0)] * 3, [5, 5, 5], "here") is None
    assert Siblings.of([Beginning(1, 0), Beginning(0, 0)], [5, 5], "here") is None


@pytest.mark.parametrize(
    ("beginnings", "message"),
    [
        ([(0, 0), (2, 1), (2, 1)], r"text_rank is \[0, 2, 2\]; allowed are 0 to 2, each once, or 0 for all"),
        ([(0, 0), (0, 3), (0, 0)], r"text_rank is \[0, 0, 0\]; allowed are 0 to 2"),
        ([(0, 1), (1, 0), (2, 0)], r"common_tokens is 1 at text_rank 0; allowed are at most 0"),
        ([(0, 0), (1, 5), (2, 0)], r"common_tokens is 5 at text_rank 1; allowed are at most 4"),
        ([(1, 5), (0, 0), (2, 0)], r"common_tokens is 5 at text_rank 1; allowed are at most 4"),
    ],
)
def test_beginnings_that_no_texts_have_are_refused(beginnings, message):
    with pytest.raises(DataError, match=f"FILE: {message}"):
        Siblings.of([Beginning(*each) for each in beginnings], [4, 9, 9], "FILE")
