"""What a server holds, for how long, and what it says to what does not fit."""

from collections import namedtuple

import numpy as np
import pytest

from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.wire import (
    GROUP_STATE,
    NO_ROWS,
    RECEIPT,
    ROW,
    Ask,
    RegisterGroup,
    RowsDraft,
    columns,
    encode,
)
from tests.unit.drafting.service.helpers import store_of, tokens


def ask(store, now=0.0, registered=(), fetched=(), updates=()):
    draft = RowsDraft()
    for group, request, offset, new in updates:
        draft.add(group, request, offset, tokens(*new).tobytes())
    groups = [RegisterGroup(*group) if len(group) == 3 else RegisterGroup(*group, b"") for group in registered]
    asked = np.array(fetched, np.int64).tobytes()
    return reply_to(encode(Ask(1, groups, asked, draft.rows())), store, now)


State = namedtuple("State", "group epoch start end")
Receipt = namedtuple("Receipt", "group request epoch count conflict")


def states(reply):
    return [State(*row) for row in columns(reply.states, GROUP_STATE).tolist()]


def receipts(reply):
    return [Receipt(*row) for row in columns(reply.receipts, RECEIPT).tolist()]


def fetched(store, group, epoch=0, cursor=0, now=0.0):
    reply = ask(store, now, fetched=[(group, epoch, cursor)])
    return (
        next(iter(states(reply)), None),
        [tuple(row[1:]) for row in columns(reply.rows.columns, ROW).tolist()],
        reply,
    )


def test_appends_are_idempotent_and_gaps_answered_with_the_count():
    store = store_of()
    reply = ask(store, registered=[(7, 60.0)], updates=[(7, 0, 0, [1, 2, 3]), (7, 0, 1, [2, 3, 4]), (7, 0, 0, [1, 2])])
    assert [receipt.count for receipt in receipts(reply)] == [3, 4, 4]
    assert [receipt.count for receipt in receipts(ask(store, updates=[(7, 0, 9, [1])]))] == [4]
    reply = ask(store, updates=[(7, 0, 3, [5, 6])])
    assert [(receipt.count, receipt.conflict) for receipt in receipts(reply)] == [(4, True)]
    assert (store.counts["duplicates"], store.counts["gaps"], store.counts["conflicts"]) == (1, 1, 1)
    _, rows, reply = fetched(store, 7)
    assert (rows, reply.rows.tokens) == ([(0, 0, 4)], tokens(1, 2, 3, 4).tobytes())


def test_a_cursor_fetches_what_came_after_it():
    store = store_of()
    ask(store, registered=[(7, 60.0)], updates=[(7, 0, 0, [1, 2]), (7, 1, 0, [3]), (7, 0, 2, [4])])
    state, rows, _ = fetched(store, 7)
    assert (state.start, state.end, rows) == (0, 3, [(0, 0, 3), (1, 0, 1)])
    ask(store, updates=[(7, 1, 1, [5, 6])])
    assert fetched(store, 7, state.epoch, state.end)[1] == [(1, 1, 2)]
    assert fetched(store, 7, state.epoch, 4)[:2] == (None, [])
    for epoch, cursor in [(state.epoch + 1, 4), (state.epoch, 5)]:
        assert fetched(store, 7, epoch, cursor)[1] == [(0, 0, 3), (1, 0, 3)]


def test_who_is_level_is_not_sent_what_he_brings():
    store = store_of()
    reply = ask(store, registered=[(7, 60.0)], fetched=[(7, 0, 0)], updates=[(7, 0, 0, [1])])
    assert (reply.rows, states(reply)[0].end) == (NO_ROWS, 1)


@pytest.mark.parametrize("cuts", [1, 1000])
def test_a_long_log_comes_in_frames_of_bounded_size(cuts):
    store = store_of()
    ask(store, registered=[(7, 60.0)])
    text = [number % 50 for number in range(300_000)]
    size = len(text) // cuts
    for start in range(0, len(text), size):
        ask(store, updates=[(7, 0, start, text[start : start + size])])
    cursor = epoch = said = frames = 0
    while said < len(text):
        state, rows, reply = fetched(store, 7, epoch, cursor)
        assert rows[0][1] == said
        assert len(encode(reply)) < 1.1 * (1 << 20)
        epoch, cursor, said, frames = state.epoch, state.end, said + rows[0][2], frames + 1
    assert frames == 2


def test_a_group_lives_its_time_after_it_was_last_asked_for():
    store = store_of()
    ask(store, 0.0, registered=[(7, 60.0), (8, 90.0)])
    ask(store, 50.0, fetched=[(7, 0, 0)])
    assert store.groups == [8, 7]
    ask(store, 100.0)
    assert store.groups == [7]
    reply = ask(store, 200.0, fetched=[(7, 0, 0)], updates=[(7, 0, 0, [1])])
    assert (reply.unknown, states(reply), store.num_bytes, store.counts["expired_groups"]) == ([7], [], 0, 2)


def test_memory_is_bounded_and_whole_groups_make_room():
    store = store_of(memory_limit_bytes=20_000, idle_s=10.0)
    for group in range(3):
        ask(store, float(group), registered=[(group, 1e6)], updates=[(group, 0, 0, [1] * 1000)])
    assert store.num_bytes < 20_000
    reply = ask(store, 5.0, updates=[(2, 0, 1000, [1] * 1000)])
    assert (reply.full, receipts(reply)[0].count, store.groups) == ([2], 1000, [0, 1, 2])
    reply = ask(store, 10.5, updates=[(2, 0, 1000, [1] * 1000)])
    assert (reply.full, receipts(reply)[0].count, store.groups) == ([], 2000, [1, 2])
    assert (store.counts["evicted_groups"], store.counts["refused_for_memory"]) == (1, 1)
    for group in range(100):
        ask(store, 11.0, registered=[(1000 + group, 1e6, tokens(*[1] * 500).tobytes())])
        assert store.num_bytes <= 20_000


def test_another_prompt_of_a_group_is_refused():
    store = store_of()
    ask(store, registered=[(7, 60.0, tokens(1).tobytes())], updates=[(7, 0, 0, [1])])
    reply = ask(store, registered=[(7, 60.0, tokens(2).tobytes())], fetched=[(7, 0, 0)], updates=[(7, 0, 1, [1])])
    assert (reply.alien, states(reply), reply.rows, receipts(reply), reply.unknown) == ([7], [], NO_ROWS, [], [])


def test_an_empty_batch_of_rows_is_nothing():
    assert RowsDraft().rows() == NO_ROWS
