"""Messages to bytes and back: MessagePack of typed structs, numpy arrays as raw buffers."""

from typing import Any, TypeVar

import msgspec
import numpy as np

from sestina.transport.messages import Message

T = TypeVar("T")
_ARRAY = 1
"""MessagePack extension code of an array: dtype and shape as MessagePack, then the raw bytes."""


def encode(messages: list[Message]) -> bytes:
    """Return the bytes of some messages, in order."""
    return _ENCODER.encode(messages)


def decode(frame: bytes) -> list[Message]:
    """Return the messages of a frame; arrays are read-only views of it.

    Raises msgspec.MsgspecError when the frame is not such a list: the peer runs other code.
    """
    return _DECODER.decode(frame)


def pack(value: object) -> bytes:
    """Return the bytes of a record that may hold arrays."""
    return _ENCODER.encode(value)


def unpack(data: bytes, kind: type[T]) -> T:
    """Return a record that was packed; raises msgspec.MsgspecError when it is of another kind."""
    return msgspec.msgpack.decode(data, type=kind, ext_hook=_decode_array, dec_hook=_expect_array)


def _encode_array(value: Any) -> msgspec.msgpack.Ext:  # noqa: ANN401 - the hook's signature
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"{type(value).__name__} cannot be sent")
    header = msgspec.msgpack.encode((value.dtype.str, value.shape))
    return msgspec.msgpack.Ext(_ARRAY, len(header).to_bytes(2, "little") + header + value.tobytes())


def _decode_array(code: int, data: memoryview) -> "np.ndarray[Any, Any]":
    if code != _ARRAY:
        raise msgspec.ValidationError(f"unknown extension {code}")
    size = int.from_bytes(data[:2], "little")
    dtype, shape = msgspec.msgpack.decode(data[2 : 2 + size], type=tuple[str, tuple[int, ...]])
    try:
        return np.frombuffer(data[2 + size :], dtype=dtype).reshape(shape)
    except (TypeError, ValueError) as error:
        raise msgspec.ValidationError(f"array of {dtype} {shape}: {error}") from None


def _expect_array(kind: type, value: Any) -> Any:  # noqa: ANN401 - the hook's signature
    if getattr(kind, "__origin__", kind) is np.ndarray and isinstance(value, np.ndarray):
        return value
    raise msgspec.ValidationError(f"expected {kind.__name__}, got {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array)
_DECODER = msgspec.msgpack.Decoder(list[Message], ext_hook=_decode_array, dec_hook=_expect_array)
