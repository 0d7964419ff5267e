"""What a client does with its index: local decoding first, others' tokens when they fit."""

import numpy as np
import pytest

from sestina.drafting.errors import ExistsError, IndexFullError, NotFoundError, OutOfRangeError
from sestina.drafting.service.entries import GroupEntry
from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.responses import OTHERS_SHARE
from sestina.drafting.service.wire import encode
from tests.unit.drafting.service.helpers import PATIENCE_S, VOCAB, Client, exchange, settle, store_of, texts_of, tokens


def held(client, group=0):
    texts = {}
    for request, piece in texts_of(client.index, group)[1]:
        texts[request] = texts.get(request, []) + piece
    return {request: text for request, text in texts.items() if request >= 0}


@pytest.fixture
def store():
    return store_of()


@pytest.fixture
def pair(store):
    clients = [Client(), Client()]
    for client in clients:
        client.register(0, [9])
    settle(clients, store, 0.0)
    return clients


def test_a_response_that_runs_here_is_not_moved_by_a_server(pair, store):
    first, second = pair
    first.start(0, 5)
    first.append(0, 5, 0, [1, 2, 3, 4])
    settle(pair, store, 10.0)
    # The first is taken for dead, and the second begins again from what was known of the response.
    third = Client()
    third.register(0, [9])
    third.start(0, 5, [1, 2])
    settle([third], store, 20.0)
    assert held(third) == {5: [1, 2]}
    assert third.responses.counts["rows_ahead"] == 1
    third.append(0, 5, 2, [3])
    third.stop(0, 5)
    settle([third], store, 30.0)
    assert held(third) == {5: [1, 2, 3, 4]}
    assert held(second) == {5: [1, 2, 3, 4]}


def test_a_response_that_begins_again_before_the_end_of_what_is_known_drafts_from_where_it_is(pair, store):
    first, second = pair
    first.start(0, 5)
    first.append(0, 5, 0, [1, 2, 3, 4])
    settle(pair, store, 10.0)
    second.start(0, 5, [1, 2])
    assert second.responses.counts["reruns"] == 1
    second.append(0, 5, 2, [3, 4, 6])
    settle(pair, store, 20.0)
    assert second.responses.counts["conflicts"] == 0
    first.stop(0, 5)
    settle(pair, store, 30.0)
    assert held(first)[5] == [1, 2, 3, 4, 6]


def test_tokens_that_differ_from_what_the_server_has_stay_where_they_are(pair, store):
    first, second = pair
    first.start(0, 5)
    second.start(0, 5)
    first.append(0, 5, 0, [1, 2])
    second.append(0, 5, 0, [1, 3])
    settle(pair, store, 10.0)
    assert (held(first), held(second)) == ({5: [1, 2]}, {5: [1, 3]})
    assert second.responses.counts["conflicts"] >= 1
    second.append(0, 5, 2, [4])
    assert second.responses.num_unsent_tokens == 0


def test_tokens_that_a_server_shows_to_differ_are_not_sent(pair, store):
    first, second = pair
    first.start(0, 5)
    first.append(0, 5, 0, [1, 2])
    exchange(first, store, 10.0)
    exchange(second, store, 10.0)
    third = Client()
    third.register(0, [9])
    asked = third.link.compose(10.0)
    third.start(0, 5)
    third.append(0, 5, 0, [1, 3])
    third.link.receive(encode(reply_to(asked, store, 10.0)), 10.0)
    third.append(0, 5, 2, [4])
    assert (third.responses.counts["conflicts"], third.responses.num_unsent_tokens) == (1, 0)


def test_rows_that_would_leave_a_gap_have_the_group_fetched_anew(pair, store):
    first, second = pair
    first.start(0, 5)
    first.append(0, 5, 0, [1, 2, 3])
    exchange(first, store, 10.0)
    second.responses.groups[0].cursor = 1
    first.append(0, 5, 3, [4])
    settle(pair, store, 20.0)
    assert second.responses.counts["gaps"] == 1
    assert held(second) == {5: [1, 2, 3, 4]}


def test_a_lost_exchange_is_said_again_with_what_came_since(pair, store):
    client = pair[0]
    client.start(0, 5)
    client.append(0, 5, 0, [1, 2])
    assert client.link.compose(10.0) is not None
    client.append(0, 5, 2, [3])
    assert client.link.compose(10.0 + PATIENCE_S / 2) is None
    exchange(client, store, 10.0 + PATIENCE_S)
    assert client.responses.counts["lost_exchanges"] == 1
    assert client.responses.num_unsent_tokens == 0


def test_a_full_server_is_left_alone_for_a_while_and_told_later():
    store = store_of(memory_limit_bytes=4000, idle_s=1.0)
    client = Client()
    client.register(0, [9])
    client.start(0, 0)
    client.append(0, 0, 0, [1] * 1000)
    exchange(client, store, 1.0)
    assert client.responses.counts["pauses"] == 1
    assert client.link.compose(1.5) is None
    store.settings = store_of(memory_limit_bytes=9000).settings
    exchange(client, store, 2.1)
    assert client.responses.num_unsent_tokens == 0


def test_more_than_a_frame_holds_goes_in_turns():
    store, client = store_of(), Client()
    for group in range(4):
        client.register(group, [9])
        client.start(group, 0)
        client.append(group, 0, 0, [1] * 150_000)
    now, left = 0.0, []
    while client.responses.num_unsent_tokens:
        now += 1.0
        exchange(client, store, now)
        left.append(client.responses.num_unsent_tokens)
    assert len(left) == 3
    reader = Client()
    for group in range(4):
        reader.register(group, [9])
    settle([reader], store, now, rounds=6)
    assert [held(reader, group)[0] == [1] * 150_000 for group in range(4)] == [True] * 4


def test_groups_are_dropped_after_their_time_unless_something_runs_in_them():
    store, client = store_of(), Client()
    client.register(0, [9], ttl_s=10.0)
    client.register(1, [9], ttl_s=10.0)
    client.start(1, 0)
    for now in (1.0, 12.0, 30.0):
        exchange(client, store, now)
    assert client.index.groups == [1]
    client.stop(1, 0)
    for now in (32.0, 45.0):
        exchange(client, store, now)
    assert client.index.groups == []
    with pytest.raises(NotFoundError):
        client.start(1, 0)


def test_an_index_at_its_limit_drops_what_nothing_runs_in_then_takes_over_nothing_and_still_decodes():
    limit = 2_200_000
    store, writer, reader = store_of(), Client(), Client(memory_limit_bytes=limit)
    for client in (writer, reader):
        for group in range(2):
            client.register(group, [9])
    reader.start(1, 7)
    settle([reader], store, 0.0)
    text = np.random.default_rng(0).integers(0, VOCAB, 40_000).tolist()
    for group in range(2):
        writer.start(group, 0)
        writer.append(group, 0, 0, text[:20_000])
    settle([writer, reader], store, 10.0)
    assert reader.index.groups == [1]
    assert reader.responses.counts["dropped_for_memory"] == 1
    for start in range(20_000, 40_000, 1000):
        writer.append(1, 0, start, text[start : start + 1000])
        settle([writer, reader], store, start, rounds=2)
        reader.append(1, 7, (start - 20_000) // 1000, [1])
    assert 20_000 < len(held(reader, 1)[0]) < 39_000
    assert limit * OTHERS_SHARE < reader.index.num_bytes < limit
    assert held(reader, 1)[7] == [1] * 20


def test_an_index_that_is_full_of_what_runs_refuses():
    client = Client(memory_limit_bytes=100_000)
    client.register(0, [9])
    client.start(0, 0)
    client.append(0, 0, 0, np.random.default_rng(0).integers(0, VOCAB, 20_000).tolist())
    with pytest.raises(IndexFullError):
        client.append(0, 0, 20_000, [1])
    with pytest.raises(IndexFullError):
        client.register(1, [9])
    assert held(client)[0] == list(client.responses.groups[0].streams[0].log[::4])


def test_what_is_asked_wrongly_is_refused(pair):
    client = pair[0]
    client.start(0, 5)
    handle = client.handles[0, 5]
    with pytest.raises(ExistsError):
        client.start(0, 5)
    with pytest.raises(NotFoundError):
        client.start(3, 5)
    with pytest.raises(OutOfRangeError, match="ttl_s"):
        client.register(1, [9], ttl_s=0.0)
    client.stop(0, 5)
    client.handles[0, 5] = handle
    with pytest.raises(NotFoundError, match="stopped"):
        client.append(0, 5, 0, [1])
    client.responses.drop_group(0)
    with pytest.raises(NotFoundError, match="gone"):
        client.append(0, 5, 0, [1])


def test_an_entry_without_anything_said_has_nothing_to_send():
    assert GroupEntry(group=0, prompt=tokens(1).tobytes(), ttl_s=1.0).unsent == set()
