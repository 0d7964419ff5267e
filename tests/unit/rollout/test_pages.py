import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sestina.rollout.pages import PAGE_TOKENS, PagePool, pages_for


def tokens_of(*pages):
    return np.repeat(np.array(pages, np.int32), PAGE_TOKENS)


def build(pool, *pages):
    held = []
    for i, token in enumerate(pages):
        page = pool.allocate()
        pool.publish(page, held[-1] if held else None, tokens_of(token))
        held.append(page)
        assert i < pool.num_pages
    return held


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_pages_for(tokens, pages):
    assert pages_for(tokens) == pages


def test_a_released_prefix_is_found_again_until_its_room_is_needed():
    pool = PagePool(3)
    path = build(pool, 1, 2)
    pool.release(path)
    assert pool.match(tokens_of(1, 2, 3)) == path
    pool.release(path)
    assert {pool.allocate() for _ in range(3)} == {0, 1, 2}
    assert pool.allocate() is None
    assert pool.match(tokens_of(1)) == []


def test_children_are_evicted_before_their_parents():
    pool = PagePool(2)
    path = build(pool, 1, 2)
    pool.release(path)
    assert pool.allocate() == path[1]
    assert pool.match(tokens_of(1, 2)) == path[:1]


def test_the_same_prefix_computed_twice_keeps_the_second_copy_private():
    pool = PagePool(4)
    first, second = build(pool, 7, 8), build(pool, 7, 8)
    pool.release(second)
    assert pool.match(tokens_of(7, 8)) == first
    assert pool.check_integrity() is None
    assert pool.num_available == 2


def test_forget_all_makes_held_pages_private():
    pool = PagePool(2)
    path = build(pool, 1)
    pool.forget_all()
    assert pool.match(tokens_of(1)) == []
    pool.release(path)
    assert pool.num_available == 2
    assert pool.check_integrity() is None


def test_a_page_is_told_from_another_by_all_its_tokens():
    pool = PagePool(2)
    build(pool, 1)
    other = tokens_of(1)
    other[-1] = 2
    assert pool.match(other) == []


class PoolMachine(RuleBasedStateMachine):
    """Requests that match, grow, publish and leave in any order; a naive model says which prefixes may be found."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(6)
        self.requests: list[tuple[list[int], list[int]]] = []

    @rule(text=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def start(self, text):
        matched = self.pool.match(tokens_of(*text))
        assert len(matched) <= len(text)
        self.requests.append((list(text[: len(matched)]), matched))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), token=st.integers(0, 1), publish=st.booleans())
    def grow(self, data, token, publish):
        text, pages = data.draw(st.sampled_from(self.requests))
        page = self.pool.allocate()
        if page is None:
            return
        assert all(page not in held for _, held in self.requests)
        if publish:
            self.pool.publish(page, pages[-1] if pages else None, tokens_of(token))
        text.append(token)
        pages.append(page)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave(self, data):
        request = data.draw(st.sampled_from(self.requests))
        self.requests.remove(request)
        self.pool.release(request[1])

    @rule()
    def forget(self):
        self.pool.forget_all()

    @invariant()
    def consistent(self):
        assert self.pool.check_integrity() is None
        held = {page for _, pages in self.requests for page in pages}
        assert self.pool.num_available == self.pool.num_pages - len(held)


TestPoolMachine = PoolMachine.TestCase
