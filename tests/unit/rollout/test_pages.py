from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sestina.rollout.pages import PAGE_TOKENS, PagePool, pages_for


def tokens_of(*pages):
    return np.repeat(np.array(pages, np.int32), PAGE_TOKENS)


def enter(pool, page, path, token):
    """Publish a page below the last one of a path; returns the page that is then held."""
    standing = pool.publish(page, path[-1] if path else None, tokens_of(token))
    if standing != page:
        pool.exchange(page, standing)
    return standing


def build(pool, *pages):
    held = []
    for token in pages:
        held.append(enter(pool, pool.allocate(), held, token))
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


def test_the_same_prefix_computed_twice_is_held_once():
    pool = PagePool(5)
    first, second = build(pool, 7, 8), build(pool, 7, 8, 9)
    assert second[:2] == first
    assert pool.num_available == 2
    pool.release(first)
    assert pool.num_available == 2, "the other still holds it"
    pool.release(second)
    assert pool.match(tokens_of(7, 8, 9)) == second
    assert pool.check_integrity() is None


def test_a_copy_stays_with_its_request_until_it_is_exchanged():
    pool = PagePool(3)
    [first] = build(pool, 7)
    copy = pool.allocate()
    assert pool.publish(copy, None, tokens_of(7)) == first
    assert pool.num_available == 1
    pool.release([first])
    pool.exchange(copy, first)
    assert {pool.allocate(), pool.allocate()} == {copy, 2}
    assert pool.allocate() is None, "what was idle is held again"
    pool.release([first])
    assert pool.allocate() == first
    assert pool.match(tokens_of(7)) == []


def test_nothing_is_found_below_a_page_that_is_not_in_the_tree():
    pool = PagePool(4)
    path = build(pool, 1)
    pool.forget_all()
    below = pool.allocate()
    assert pool.publish(below, path[0], tokens_of(2)) == below
    assert build(pool, 1)[0] != path[0], "what was forgotten is not held for another"
    assert pool.match(tokens_of(1, 2)) != [path[0], below]
    assert pool.check_integrity() is None


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


@dataclass
class Held:
    """A request in the machine below."""

    text: list[int]
    """A token for each page."""
    pages: list[int]
    num_public: int
    """Leading pages that are in the tree."""
    num_old: int = 0
    """Leading pages that older weights have computed."""


class PoolMachine(RuleBasedStateMachine):
    """Requests that match, grow, publish and leave in any order; a naive model says which prefixes may be found."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(6)
        self.requests: list[Held] = []

    @rule(text=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def start(self, text):
        matched = self.pool.match(tokens_of(*text))
        assert len(matched) <= len(text)
        self.requests.append(Held(text=text[: len(matched)], pages=matched, num_public=len(matched)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), token=st.integers(0, 1), publish=st.booleans())
    def grow(self, data, token, publish):
        request = data.draw(st.sampled_from(self.requests))
        page = self.pool.allocate()
        if page is None:
            return
        assert all(page not in held.pages for held in self.requests)
        request.text.append(token)
        request.pages.append(page)
        if publish:
            self.publish(request)

    def publish(self, request):
        for i in range(max(request.num_public, request.num_old), len(request.pages)):
            own = request.pages[i]
            request.pages[i] = enter(self.pool, own, request.pages[:i], request.text[i])
            if request.num_old:
                assert request.pages[i] == own, "what lies below older weights is nobody else's"
            else:
                request.num_public = i + 1

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave(self, data):
        request = data.draw(st.sampled_from(self.requests))
        self.requests.remove(request)
        self.pool.release(request.pages)

    @rule()
    def forget(self):
        self.pool.forget_all()
        for request in self.requests:
            request.num_old, request.num_public = len(request.pages), 0

    @invariant()
    def consistent(self):
        assert self.pool.check_integrity() is None
        held = {page for request in self.requests for page in request.pages}
        assert self.pool.num_available == self.pool.num_pages - len(held)

    @invariant()
    def what_is_spelt_alike_is_one_page(self):
        paths = {}
        for request in self.requests:
            for i, page in enumerate(request.pages[: request.num_public]):
                assert paths.setdefault(tuple(request.text[: i + 1]), page) == page


TestPoolMachine = PoolMachine.TestCase
