"""Frames for either side, which a fuzzer changes by what of the decoders they reach; atheris is libFuzzer for Python.

python -m tests.unit.drafting.service.fuzz_frames [libFuzzer's arguments]
"""

import itertools
import sys

import atheris
import msgspec

with atheris.instrument_imports(include=["sestina.drafting.service"]):
    from sestina.drafting.service.exchange import reply_to
    from sestina.drafting.service.wire import Answer, Refusal, encode
from tests.unit.drafting.service.helpers import Client, exchange, store_of

LEFT_BYTES = 20_000
"""Of a store, and of what an index takes over its first use, after a frame of at most MAX_LEN bytes."""
MAX_LEN = 2000


def to_a_server(frame: bytes) -> None:
    store = store_of()
    reply = reply_to(frame, store, 0.0)
    assert isinstance(reply, Answer | Refusal)
    assert isinstance(reply, Answer) or (store.groups, store.counts["malformed_frames"]) == ([], 1)
    assert store.num_bytes < LEFT_BYTES
    encode(reply)


def to_a_client(frame: bytes) -> None:
    store, client = store_of(), Client()
    client.register(7, [1, 2])
    client.start(7, 0)
    client.append(7, 0, 0, [3, 4, 5])
    exchange(client, store, 1.0)
    client.append(7, 0, 3, [6])
    client.link.compose(2.0)
    client.link.receive(frame, 2.0)
    assert client.index.check_integrity() == ""
    assert client.index.num_tokens(7) < LEFT_BYTES
    client.append(7, 0, 4, [7])
    exchange(client, store, 3.0)


def fields(data: bytes) -> list[bytes]:
    """The first three bytes say how long three fields are; a fourth is the rest."""
    start, first, second, third = itertools.accumulate(data[:3].ljust(3, b"\0"), initial=3)
    return [data[start:first], data[first:second], data[second:third], data[third:]]


def ask_of(data: bytes) -> bytes:
    prompt, asked, rows, tokens = fields(data)
    return msgspec.msgpack.encode(["ask", 1, [[7, 60.0, prompt]], asked, [rows, tokens]])


def answer_of(data: bytes) -> bytes:
    states, receipts, rows, tokens = fields(data)
    return msgspec.msgpack.encode(["answer", 2, 1, states, [rows, tokens], receipts, [], [], [], {}])


INPUTS = (
    to_a_server,
    to_a_client,
    lambda data: to_a_server(ask_of(data)),
    lambda data: to_a_client(answer_of(data)),
)


def one_input(data: bytes) -> None:
    """The first byte says who gets the rest: as a frame, or as the fields of one."""
    if data:
        INPUTS[data[0] % len(INPUTS)](data[1:])


if __name__ == "__main__":
    atheris.Setup([*sys.argv, f"-max_len={MAX_LEN}"], one_input)
    atheris.Fuzz()
