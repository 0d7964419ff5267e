"""The responses of one prompt, weighted by their rewards, and the record that they are kept and sent as.

A record is the CRC-32 of what follows (4 bytes), the size of the text (8), and MessagePack under zstd.
"""

import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from sestina.core.errors import DataError
from sestina.core.units import TokenArray

REWARD_WEIGHT = 64
"""What the best response of a prompt counts more than its worst one, which counts 1."""

MAX_TEXT_BYTES = 1 << 31
_HEAD = struct.Struct("<IQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All responses to one prompt in one rollout."""

    responses: tuple[TokenArray, ...]
    weights: tuple[int, ...]
    """What each occurrence in a response counts, at least 1."""


def weights_of(rewards: Sequence[float]) -> tuple[int, ...]:
    """Return what responses of these rewards count, from 1 to 1 + REWARD_WEIGHT.

    Only differences matter, so rewards may be zero or negative: the least counts 1, the highest most, others in
    proportion. Where rewards are equal every response counts 1, and the commonest branch is followed. A response
    without a reward (NaN) counts as the least.
    """
    known = [reward for reward in rewards if math.isfinite(reward)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if not high > low:
        return (1,) * len(rewards)
    shares = [(reward - low) / (high - low) if math.isfinite(reward) else 0.0 for reward in rewards]
    return tuple(1 + round(share * REWARD_WEIGHT) for share in shares)


def prompt_key(prompt: TokenArray) -> int:
    """Return a 64-bit number of a prompt's tokens; prompts that read the same share their history."""
    return int.from_bytes(hashlib.blake2b(prompt.astype("<i4").tobytes(), digest_size=8).digest(), "little")


def to_record(answers: Answers) -> bytes:
    """Return answers as bytes, for `from_record`."""
    tokens = np.concatenate([np.zeros(0, np.int32), *answers.responses])
    lengths = [len(response) for response in answers.responses]
    text = msgspec.msgpack.encode((answers.weights, lengths, tokens.astype("<i4", copy=False).tobytes()))
    packed = pa.compress(text, codec="zstd", asbytes=True)
    size = struct.pack("<Q", len(text))
    return struct.pack("<I", zlib.crc32(packed, zlib.crc32(size))) + size + packed


def is_whole(record: bytes) -> bool:
    """Whether a record has the checksum that it was made with."""
    return len(record) > _HEAD.size and zlib.crc32(record[4:]) == _HEAD.unpack_from(record)[0]


def from_record(record: bytes) -> Answers:
    """Return the answers of a record; raises DataError when it is damaged, or is none."""
    if not is_whole(record):
        raise DataError(f"a history record of {len(record)} bytes has another checksum than it was made with")
    try:
        size = _HEAD.unpack_from(record)[1]
        text = pa.decompress(record[_HEAD.size :], min(size, MAX_TEXT_BYTES), codec="zstd", asbytes=True)
        weights, lengths, raw = msgspec.msgpack.decode(text, type=tuple[tuple[int, ...], list[int], bytes])
        tokens = np.frombuffer(raw, "<i4")
    except (pa.ArrowException, OSError, msgspec.MsgspecError, ValueError) as error:
        raise DataError(f"{len(record)} bytes that are no history record: {error}") from None
    if len(weights) != len(lengths) or min(lengths, default=0) < 0 or sum(lengths) != len(tokens):
        raise DataError(f"a history record of {len(weights)} weights, {len(lengths)} lengths, {len(tokens)} tokens")
    bounds = np.cumsum(lengths)[:-1]
    return Answers(responses=tuple(np.split(tokens, bounds)) if lengths else (), weights=weights)
