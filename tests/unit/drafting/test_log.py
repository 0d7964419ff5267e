"""A log replayed gives the same drafts, byte for byte; appends and slices may come twice, and never out of turn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sestina.core.errors import DataError
from sestina.drafting.errors import OffsetConflictError, OffsetGapError, OutOfRangeError
from sestina.drafting.index import DraftSettings
from sestina.drafting.log import LogSlice
from tests.unit.drafting.helpers import append, draft, index_of, tokens
from tests.unit.drafting.test_counts import histories, run


def all_drafts(index, num_requests):
    handles = np.array([index.find_request(7, request) for request in range(num_requests)])
    limits = np.full(num_requests, 16, np.int32)
    found = [index.draft(handles, limits, DraftSettings(min_token_prob=0.01, top_k=k)) for k in (1, 4)]
    return [
        (
            f.bounds.tobytes(),
            *(a[: f.bounds[-1]].tobytes() for a in (f.token_ids, f.parents, f.probs)),
            f.scores.tobytes(),
        )
        for f in found
    ]


@settings(max_examples=100, deadline=None)
@given(histories(), st.lists(st.integers(0, 30), max_size=4))
def test_a_replayed_log_drafts_the_same_bytes(history, cuts):
    _, depth, prompt, weights, appends = history
    server, _, _ = run(depth, prompt, weights, appends)
    whole = server.fetch_since(7, 0)
    client = index_of(depth=depth)
    for cut in sorted(min(c, whole.end) for c in cuts):
        client.replay(part(server, client.fetch_since(7, 0).end if 7 in client.groups else 0, cut))
    client.replay(server.fetch_since(7, client.fetch_since(7, 0).end if 7 in client.groups else 0))
    assert all_drafts(client, len(weights)) == all_drafts(server, len(weights))
    assert client.num_bytes == server.num_bytes
    assert client.serialise(7) == server.serialise(7)
    assert client.check_integrity() == ""


def part(server, start, end):
    """The records from `start` to `end`, as a client that fetched earlier got them."""
    log = server.fetch_since(7, start)
    records = log.records[: max(0, end - start)]
    low = records & 0xFFFF
    return LogSlice(
        group=7,
        epoch=log.epoch,
        cursor=start,
        records=records,
        starts=log.starts[: 2 * int((low == 0).sum())],
        tokens=log.tokens[: int(low[low != 0xFFFF].sum())],
    )


@pytest.fixture
def server():
    index = index_of(first_epoch=5)
    index.start_group(7, tokens(1, 2))
    append(index, index.start_request(7, 0), 0, [3, 4])
    index.stop_request(index.start_request(7, 1))
    append(index, index.find_request(7, 0), 2, [3])
    return index


def test_the_log_says_what_happened(server):
    log = server.fetch_since(7, 0)
    events = [(int(r) >> 16, int(r) & 0xFFFF) for r in log.records]
    assert events == [(0, 0), (0, 2), (0, 0xFFFF), (1, 0), (1, 2), (2, 0), (2, 0xFFFF), (1, 1)]
    assert (log.epoch, log.cursor, log.end) == (5, 0, 8)
    assert log.starts.tolist() == [-1, 1, 0, 1, 1, 1]
    assert log.tokens.tolist() == [1, 2, 3, 4, 3]
    assert server.fetch_since(7, 8).end == 8


def test_a_slice_may_come_twice_but_not_early_nor_changed(server):
    client = index_of()
    whole = server.fetch_since(7, 0)
    with pytest.raises(OffsetGapError, match="records from 3, but 0 are here"):
        client.replay(server.fetch_since(7, 3))
    assert client.groups == []
    client.replay(whole)
    client.replay(whole)
    client.replay(server.fetch_since(7, 6))
    assert client.serialise(7) == server.serialise(7)
    changed = whole.tokens.copy()
    changed[3] += 1
    with pytest.raises(OffsetConflictError, match="records from 0 on differ"):
        client.replay(LogSlice(group=7, epoch=5, cursor=0, records=whole.records, starts=whole.starts, tokens=changed))
    with pytest.raises(OffsetGapError, match="cursor 9, but it has 8"):
        server.fetch_since(7, 9)


def test_a_group_started_again_is_another(server):
    client = index_of()
    client.replay(server.fetch_since(7, 0))
    server.drop_group(7)
    server.start_group(7, tokens(9))
    with pytest.raises(OffsetConflictError, match="is of epoch 6, here is 5; drop the group first"):
        client.replay(server.fetch_since(7, 0))
    client.drop_group(7)
    client.replay(server.fetch_since(7, 0))
    assert client.num_tokens(7) == 1


BROKEN = {
    "tokens without a record": {"tokens": tokens(1, 2, 3, 4, 3, 3)},
    "a start without a record": {"starts": np.array([-1, 1, 0, 1, 1, 1, 2, 1])},
    "a token out of range": {"tokens": tokens(1, 2, 3, 400, 3)},
    "a request of no group": {"starts": np.array([0, 1, 1, 1, 2, 1])},
    "a negative weight": {"starts": np.array([-1, 1, 0, -1, 1, 1])},
    "a request twice": {"starts": np.array([-1, 1, 0, 1, 0, 1])},
    "a stream that does not run": {"records": np.array([0, 2, 65535, 65536, 65538, 131072, 196607, 131073], np.uint32)},
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_log_is_refused_whole(server, what):
    log = server.fetch_since(7, 0)
    fields = {"records": log.records, "starts": log.starts, "tokens": log.tokens, **BROKEN[what]}
    client = index_of()
    with pytest.raises(OutOfRangeError, match="log of group 7"):
        client.replay(LogSlice(group=7, epoch=5, cursor=0, **fields))
    assert client.groups == []


def test_a_group_is_stored_and_restored(server):
    raw = server.serialise(7)
    other = index_of()
    assert other.restore(raw) == 7
    handle = other.find_request(7, 0)
    append(other, handle, 3, [4])
    append(server, server.find_request(7, 0), 3, [4])
    assert draft(other, handle).token_ids.tolist() == draft(server, server.find_request(7, 0)).token_ids.tolist()
    assert other.serialise(7) == server.serialise(7)
    for broken in (raw[:-3], b"", b"\x00" * 40):
        with pytest.raises(DataError, match="no slice of a log"):
            index_of().restore(broken)
    with pytest.raises(DataError, match="from its first record on, not from 3"):
        index_of().restore(server.fetch_since(7, 3).to_bytes())


def test_appends_may_come_twice_but_not_early_nor_changed():
    index = index_of()
    index.start_group(7, tokens())
    handle = index.start_request(7, 3)
    append(index, handle, 0, [1, 2, 3])
    before = index.serialise(7)
    append(index, handle, 0, [1, 2, 3])
    append(index, handle, 1, [2])
    append(index, handle, 3, [])
    assert index.serialise(7) == before
    append(index, handle, 2, [3, 4])
    assert index.fetch_since(7, 0).tokens.tolist() == [1, 2, 3, 4]
    with pytest.raises(OffsetGapError, match="group 7, request 3: tokens from offset 5, but 4 are there"):
        append(index, handle, 5, [9])
    with pytest.raises(OffsetGapError, match="offset -1"):
        append(index, handle, -1, [9])
    with pytest.raises(OffsetConflictError, match="request 3: token 9 at offset 2, where 3 is"):
        append(index, handle, 1, [2, 9])
    assert index.fetch_since(7, 0).tokens.tolist() == [1, 2, 3, 4]
