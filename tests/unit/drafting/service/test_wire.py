"""Frames that are none: a typed error, nothing changed, nothing grown."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.wire import (
    MAX_FRAME_BYTES,
    NO_ROWS,
    Answer,
    Ask,
    FrameError,
    Refusal,
    RegisterGroup,
    Rows,
    decode_ask,
    decode_reply,
    encode,
)
from tests.unit.drafting.service.helpers import Client, exchange, store_of, tokens


def whole(*numbers):
    return np.array(numbers, np.int64).tobytes()


FINE = Ask(
    1,
    [RegisterGroup(7, 60.0, tokens(1, 2).tobytes())],
    whole(7, 0, 0),
    Rows(whole(7, 0, 0, 3), tokens(3, 4, 5).tobytes()),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=30,
)


def asked(**changes):
    fields = {name: getattr(FINE, name) for name in FINE.__struct_fields__}
    return msgspec.msgpack.encode(
        ["ask", *msgspec.to_builtins(list({**fields, **changes}.values()), builtin_types=(bytes,))]
    )


@given(st.binary(max_size=200))
def test_bytes(frame):
    refused(frame)


@given(VALUES)
def test_values_of_any_kind(value):
    refused(msgspec.msgpack.encode(value))


@given(st.lists(VALUES, min_size=4, max_size=4), st.sampled_from(["ask", "answer", "refusal"]))
def test_values_of_any_kind_in_the_shape_of_a_message(values, tag):
    refused(msgspec.msgpack.encode([tag, *values]))


@given(st.data())
def test_a_frame_with_bytes_changed(data):
    frame = bytearray(encode(FINE))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    store = store_of()
    reply = reply_to(bytes(frame), store, 0.0)
    assert isinstance(reply, Answer) or (store.groups, store.counts["malformed_frames"]) == ([], 1)
    assert store.num_bytes < 3000


@given(st.binary(max_size=300), st.integers(0, 60))
def test_a_client_takes_no_reply_that_is_none(noise, cut):
    store, client = store_of(), Client()
    client.register(7, [1, 2])
    exchange(client, store, 1.0)
    whole = encode(reply_to(client.link.compose(2.0), store, 2.0))
    cut %= len(whole)
    for frame in (noise, whole[:cut]):
        with pytest.raises(FrameError):
            decode_reply(frame)
        client.link.receive(frame, 2.0)
    assert client.responses.counts["refused_frames"] == 2
    assert client.link.last_error


def refused(frame):
    store = store_of()
    with pytest.raises(FrameError):
        decode_ask(frame)
    assert isinstance(reply_to(frame, store, 0.0), Refusal)
    assert (store.groups, store.num_bytes, store.counts["malformed_frames"]) == ([], 0, 1)


def test_the_frame_that_the_others_are_not():
    assert decode_ask(encode(FINE)) == FINE
    assert decode_ask(asked()) == FINE
    assert isinstance(reply_to(encode(FINE), store_of(), 0.0), Answer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"number": -1}, ">= 0"),
        ({"registered": [[7, 0.0, b""]]}, "> 0"),
        ({"registered": [[7, float("nan"), b""]]}, "says nothing"),
        ({"registered": [[7, 1.0, b"abc"]]}, "a prompt of 3 bytes"),
        ({"registered": [[7, 1.0, tokens(50).tobytes()]]}, "token 50: must be 0 to 49"),
        ({"updates": [whole(7, 0, 0, 1), tokens(-1).tobytes()]}, "token -1: must be 0 to 49"),
        ({"updates": [whole(7, 0, 0, 2), tokens(1).tobytes()]}, "rows of 2 tokens with 4 bytes"),
        ({"updates": [whole(7, 0, 0, 1)[:-1], tokens(1).tobytes()]}, "rows of 31 bytes: must be a multiple of 32"),
        ({"updates": [whole(7, 0, 0, 0), b""]}, "rows of 0 to 0 tokens: must be 1"),
        ({"updates": [whole(7, 0, 0, 2, 7, 1, 0, -1), tokens(1).tobytes()]}, "must be 0 to 4611686018427387904"),
        ({"updates": [whole(7, 0, 2**62 + 1, 1), tokens(1).tobytes()]}, "must be 0 to 4611686018427387904"),
        ({"updates": [b"", tokens(1).tobytes()]}, "rows of 0 tokens with 4 bytes"),
        ({"fetched": whole(7, 0)}, "states of 16 bytes: must be a multiple of 24"),
        ({"fetched": whole(7, 0, -1)}, "states with -1 and 7"),
    ],
)
def test_values_out_of_range_are_named(changes, said):
    reply = reply_to(asked(**changes), store_of(), 0.0)
    assert isinstance(reply, Refusal)
    assert said in reply.error


def test_a_frame_too_large():
    reply = reply_to(encode(Ask(1, [RegisterGroup(1, 1.0, bytes(MAX_FRAME_BYTES))], b"", NO_ROWS)), store_of(), 0.0)
    assert isinstance(reply, Refusal)
    assert f"must be at most {MAX_FRAME_BYTES}" in reply.error
