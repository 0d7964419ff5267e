"""The memory limit: groups without live requests make room, and are reported."""

import numpy as np
import pytest

from sestina.drafting.errors import IndexFullError, NotFoundError
from tests.unit.drafting.helpers import append, index_of, tokens

LIMIT = 400_000


def fill(index, group, seed, live=False):
    index.start_group(group, tokens())
    handle = index.start_request(group, 0)
    append(index, handle, 0, np.random.default_rng(seed).integers(0, 90, 1500))
    if not live:
        index.stop_request(handle)
    return handle


def test_the_group_least_recently_used_goes_first():
    index = index_of(memory_limit_bytes=LIMIT)
    for group in range(3):
        fill(index, group, group)
    assert index.take_evicted() == []
    late = index.start_request(0, 1)
    index.stop_request(late)
    evicted, group = [], 3
    while not evicted:
        fill(index, group, group)
        evicted, group = index.take_evicted(), group + 1
    assert evicted[0] == 1, "group 0 was used after it"
    assert 1 not in index.groups
    assert index.take_evicted() == []
    assert index.num_bytes < LIMIT + 200_000
    assert index.check_integrity() == ""
    with pytest.raises(NotFoundError):
        index.num_tokens(1)


def test_groups_with_live_requests_stay_and_the_index_is_full():
    index = index_of(memory_limit_bytes=LIMIT)
    handles = []
    with pytest.raises(IndexFullError, match=r"bytes, all of groups with live requests"):
        handles.extend(fill(index, group, group, live=True) for group in range(100))
    assert index.take_evicted() == []
    held = index.num_bytes
    with pytest.raises(IndexFullError):
        append(index, handles[0], 1500, [1])
    assert index.num_bytes == held
    index.stop_request(handles[0])
    append(index, handles[1], 1500, [1])
    assert index.take_evicted() == [0]
    assert index.num_bytes < LIMIT


def test_a_dropped_group_gives_its_memory_back():
    index = index_of()
    empty = index.num_bytes
    for group in range(5):
        fill(index, group, group, live=True)
    for group in range(5):
        index.drop_group(group)
    assert (index.num_bytes, index.groups) == (empty, [])


def test_a_group_has_an_end():
    index = index_of()
    index.start_group(0, tokens())
    heavy = index.start_request(0, 0, weight=1 << 20)
    append(index, heavy, 0, [1] * 1000)
    with pytest.raises(IndexFullError, match="group 0, request 0: a group holds .* and counts to at most 1073741823"):
        append(index, heavy, 1000, [1] * 24)
    for request in range(1, 65534):
        index.start_request(0, request)
    with pytest.raises(IndexFullError, match="a group holds at most 65534 requests"):
        index.start_request(0, 65534)
    assert index.num_tokens(0) == 1000
