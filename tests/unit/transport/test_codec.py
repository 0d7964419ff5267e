import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.transport.codec import decode, encode
from sestina.transport.messages import Ping, StartChunk, Stop, TrainDone

int_arrays = hnp.arrays(np.int32, st.integers(0, 30))


@given(prompt=int_arrays, generated=int_arrays, group=st.integers(0, 2**50), temperature=st.floats(0, 4))
def test_chunks_survive_the_wire(prompt, generated, group, temperature):
    chunk = ChunkRequest(
        id=RequestId(group, 3),
        prompt=prompt,
        generated=generated,
        max_tokens=5,
        max_new_tokens=9,
        temperature=temperature,
    )
    first, ping, last = decode(encode([StartChunk(chunk=chunk), Ping(), TrainDone(step=1, metrics={"a": 0.5})]))
    assert np.array_equal(first.chunk.prompt, prompt)
    assert np.array_equal(first.chunk.generated, generated)
    assert first.chunk.prompt.dtype == np.int32
    assert (first.chunk.id, first.chunk.temperature) == (chunk.id, temperature)
    assert (ping, last) == (Ping(), TrainDone(step=1, metrics={"a": 0.5}))


@given(frame=st.binary(max_size=60))
def test_garbage_raises_one_kind_of_error(frame):
    with contextlib.suppress(msgspec.MsgspecError):
        decode(frame)


def test_what_cannot_be_sent_is_named():
    with pytest.raises(NotImplementedError, match="object cannot be sent"):
        encode([TrainDone(step=1, metrics={"a": object()})])


def test_a_truncated_frame_is_refused():
    frame = encode([Stop(), Ping()])
    with pytest.raises(msgspec.MsgspecError):
        decode(frame[:-1])


@pytest.mark.parametrize("header", [("<i4", (3,)), ("no", (1,)), ("<i4", (-1, -1))])
def test_an_array_that_lies_about_itself_is_refused(header):
    text = msgspec.msgpack.encode(header)
    array = msgspec.msgpack.Ext(1, len(text).to_bytes(2, "little") + text + b"1234")
    frame = msgspec.msgpack.encode([{"type": "TrainDone", "step": 1, "metrics": array}])
    with pytest.raises(msgspec.ValidationError):
        decode(frame)
