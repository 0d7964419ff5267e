"""Chunks as one request to SGLang, and its replies as what each chunk produced. No I/O."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from sestina.core.errors import EngineError
from sestina.core.noise import request_key
from sestina.core.records import ChunkRequest, ChunkResult, Finish
from sestina.core.units import LogprobArray, Seconds, TokenArray, Version
from sestina.rollout.sglang.drafting import whose


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

    id: str = ""
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    num_retractions: int = 0
    output_token_logprobs: list[tuple[float, int, Any]] = []
    weight_versions: list[VersionSpan] = []
    spec_num_correct_drafts: int = 0
    spec_verify_ct: int = 0
    spec_cap_length: float = 0.0
    """Drafted tokens over `spec_verify_ct` steps, as sestina.sglang_plugin counts them."""


class Refusal(msgspec.Struct):
    """Why SGLang does not answer a call that it has begun to answer."""

    message: str


class Reply(msgspec.Struct):
    """One event of the stream that answers /generate: what one request has come to."""

    meta_info: MetaInfo = msgspec.field(default_factory=MetaInfo)
    output_ids: list[int] = []
    error: Refusal | None = None

    @classmethod
    def nothing(cls) -> "Reply":
        """Return what an aborted request that was never asked for has come to."""
        return cls(meta_info=MetaInfo(finish_reason=FinishReason(type="abort")))


def generate_body(chunks: Mapping[str, ChunkRequest], *, seed: int, stop_token: int, version: Version) -> bytes:
    """Return the body of /generate that asks for chunks by their request ids.

    One call for many costs SGLang a third of one for each. The reply is a stream, so that each chunk comes when it
    ends. The prefix cache is salted with the version: keys and values of other weights are never found.
    """
    body = {
        "rid": list(chunks),
        "input_ids": [[*chunk.prompt.tolist(), *chunk.generated.tolist()] for chunk in chunks.values()],
        "sampling_params": [_sampling(chunk, seed, stop_token) for chunk in chunks.values()],
        "return_logprob": True,
        "extra_key": f"v{version}",
        "stream": True,
    }
    return msgspec.json.encode(body)


def _sampling(chunk: ChunkRequest, seed: int, stop_token: int) -> dict[str, object]:
    return {
        "max_new_tokens": min(chunk.max_tokens, chunk.max_new_tokens - len(chunk.generated)),
        "temperature": chunk.temperature,
        "stop_token_ids": [stop_token],
        "sampling_seed": signed(request_key(seed, chunk.id)),
        "stream_interval": chunk.max_new_tokens,  # its first token is sent, and then its end
        "custom_params": whose(chunk),
    }


def signed(key: int) -> int:
    """Return a 64-bit key as the signed number of the same bits, which is how SGLang carries a seed."""
    return key - (1 << 64) if key >> 63 else key


def parse_reply(event: bytes) -> Reply:
    """Read one event; raises EngineError when it is none, or its parts contradict each other."""
    try:
        reply = msgspec.json.decode(event, type=Reply)
    except msgspec.MsgspecError as error:
        raise EngineError(f"SGLang's reply cannot be read: {error}: {event[:200]!r}") from None
    if reply.error is not None:
        raise EngineError(f"SGLang refuses: {reply.error.message}")
    drawn = [token for _, token, _ in reply.meta_info.output_token_logprobs]
    if drawn != reply.output_ids:
        raise EngineError(
            f"{reply.meta_info.id}: SGLang returned {len(reply.output_ids)} tokens and logprobs of {len(drawn)} others"
        )
    return reply


def tokens_of(reply: Reply) -> tuple[TokenArray, LogprobArray]:
    """Return the produced tokens and their log-probabilities."""
    logprobs = [logprob for logprob, _, _ in reply.meta_info.output_token_logprobs]
    return np.array(reply.output_ids, np.int32), np.array(logprobs, np.float32)


def finish_of(reply: Reply, chunk: ChunkRequest, num_generated: int) -> Finish:
    """Return why the chunk ended, now that the response has `num_generated` tokens."""
    reason = reply.meta_info.finish_reason
    match reason and reason.type:
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


def result_of(
    reply: Reply,
    chunk: ChunkRequest,
    version: Version,
    *,
    submitted_s: Seconds,
    started_s: Seconds,
    finished_s: Seconds,
) -> ChunkResult:
    """Return what a chunk has come to; raises EngineError when it came from other weights than `version`."""
    meta = reply.meta_info
    tokens, logprobs = tokens_of(reply)
    known = len(chunk.prompt) + len(chunk.generated)
    return ChunkResult(
        id=chunk.id,
        tokens=tokens,
        logprobs=logprobs,
        finish=finish_of(reply, chunk, len(chunk.generated) + len(tokens)),
        version=version_of(reply, chunk, version),
        submitted_s=submitted_s,
        started_s=started_s,
        finished_s=finished_s,
        prefilled_tokens=known - meta.cached_tokens if len(tokens) else 0,
        cached_tokens=meta.cached_tokens,
        preemptions=meta.num_retractions,
        drafted_tokens=round(meta.spec_cap_length * meta.spec_verify_ct),
        accepted_tokens=meta.spec_num_correct_drafts,
    )
