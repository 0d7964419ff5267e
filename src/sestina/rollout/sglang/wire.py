"""A chunk as SGLang's request, and SGLang's reply as what a chunk produced. No I/O."""

from typing import Any

import msgspec
import numpy as np

from sestina.core.errors import EngineError
from sestina.core.noise import request_key
from sestina.core.records import ChunkRequest, Finish
from sestina.core.units import LogprobArray, Seconds, TokenArray, Version


class FinishReason(msgspec.Struct):
    """Why SGLang stopped: stop, length or abort."""

    type: str
    message: str | None = None


class VersionSpan(msgspec.Struct, frozen=True):
    """Output tokens from `start` to `end` come from weights `version`."""

    version: str
    start: int
    end: int


class MetaInfo(msgspec.Struct):
    """The part of SGLang's account of a request that is used."""

    finish_reason: FinishReason
    cached_tokens: int = 0
    num_retractions: int = 0
    output_token_logprobs: list[tuple[float, int, Any]] = []
    weight_versions: list[VersionSpan] = []
    forward_entry_time: float | None = None
    request_finished_ts: float | None = None
    """Of the server's wall clock."""

    @property
    def running_s(self) -> Seconds:
        """From its first forward pass to its end."""
        if self.forward_entry_time is None or self.request_finished_ts is None:
            return 0.0
        return self.request_finished_ts - self.forward_entry_time


class Reply(msgspec.Struct):
    """SGLang's answer to /generate."""

    meta_info: MetaInfo
    output_ids: list[int] = []

    @classmethod
    def nothing(cls) -> "Reply":
        """Return what an aborted request that was never asked for has come to."""
        return cls(meta_info=MetaInfo(finish_reason=FinishReason(type="abort")))


def generate_body(chunk: ChunkRequest, rid: str, *, seed: int, stop_token: int, version: Version) -> bytes:
    """Return the body of /generate that asks for a chunk.

    The prefix cache is salted with the version: keys and values of other weights are never found.
    """
    body = {
        "rid": rid,
        "input_ids": [*chunk.prompt.tolist(), *chunk.generated.tolist()],
        "sampling_params": {
            "max_new_tokens": min(chunk.max_tokens, chunk.max_new_tokens - len(chunk.generated)),
            "temperature": chunk.temperature,
            "stop_token_ids": [stop_token],
            "sampling_seed": signed(request_key(seed, chunk.id)),
        },
        "return_logprob": True,
        "extra_key": f"v{version}",
    }
    return msgspec.json.encode(body)


def signed(key: int) -> int:
    """Return a 64-bit key as the signed number of the same bits, which is how SGLang carries a seed."""
    return key - (1 << 64) if key >> 63 else key


def parse_reply(body: bytes, chunk: ChunkRequest) -> Reply:
    """Read a reply of /generate; raises EngineError when it is none, or its parts contradict each other."""
    try:
        reply = msgspec.json.decode(body, type=Reply)
    except msgspec.MsgspecError as error:
        raise EngineError(f"request {chunk.id}: SGLang's reply cannot be read: {error}: {body[:200]!r}") from None
    drawn = [token for _, token, _ in reply.meta_info.output_token_logprobs]
    if drawn != reply.output_ids:
        raise EngineError(
            f"request {chunk.id}: SGLang returned {len(reply.output_ids)} tokens and logprobs of {len(drawn)} others"
        )
    return reply


def tokens_of(reply: Reply) -> tuple[TokenArray, LogprobArray]:
    """Return the produced tokens and their log-probabilities."""
    logprobs = [logprob for logprob, _, _ in reply.meta_info.output_token_logprobs]
    return np.array(reply.output_ids, np.int32), np.array(logprobs, np.float32)


def finish_of(reply: Reply, chunk: ChunkRequest, num_generated: int) -> Finish:
    """Return why the chunk ended, now that the response has `num_generated` tokens."""
    match reply.meta_info.finish_reason.type:
        case "stop":
            return "stop"
        case "length":
            return "length" if num_generated == chunk.max_new_tokens else "chunk"
        case "abort":
            return "abort"
        case other:
            raise EngineError(f"request {chunk.id}: SGLang ended it for an unknown reason '{other}'")


def version_of(reply: Reply, chunk: ChunkRequest, expected: Version) -> Version:
    """Return the weights that drew every token; raises EngineError when any token comes from others."""
    others = [span for span in reply.meta_info.weight_versions if span.version != str(expected)]
    if others:
        raise EngineError(f"request {chunk.id}: expected tokens of version {expected}, SGLang used {others}")
    return expected
