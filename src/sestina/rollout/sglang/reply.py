"""What SGLang says of a chunk, held against what was asked, as what the chunk produced. No I/O."""

from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from sestina.core.errors import EngineError
from sestina.core.records import ChunkRequest, ChunkResult, Finish, KvTraffic, VersionSpan
from sestina.core.units import LogprobArray, Seconds, TokenArray
from sestina.rollout.sglang.pool import CachedTokens, PoolAccount

KEPT_KV = "kept_kv"
"""Field of a reply, written by sestina.sglang_plugin: which tokens were drawn over keys and values of older weights."""


KV_LEFT = "kv_left"
"""Field of a reply, written by sestina.sglang_plugin: what a chunk has left in the pool, for each of its tokens."""


class FinishReason(msgspec.Struct):
    """Why SGLang stopped: stop, length or abort."""

    type: str
    message: str | None = None


class ServedSpan(msgspec.Struct, frozen=True):
    """Output tokens from `start` to `end` come from weights `version`."""

    version: str
    start: int
    end: int


class MetaInfo(msgspec.Struct):
    """The part of SGLang's account of a request that is used."""

    id: str = ""
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    cached_tokens_details: CachedTokens | None = None
    num_retractions: int = 0
    output_token_logprobs: list[tuple[float, int, Any]] = []
    weight_versions: list[ServedSpan] = []
    kept_kv: list[int | None] = []
    """`KEPT_KV` of the last tokens; None, as for those before them, is no"""
    kv_left: list[int | None] = []
    """`KV_LEFT` of the last tokens"""
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


def spans_of(reply: Reply, chunk: ChunkRequest, allowed: range) -> list[VersionSpan]:
    """Return which weights drew which tokens, in order.

    Raises EngineError when SGLang's spans leave a token out, go back, or are not of `allowed` versions.
    """
    spans = [span for span in reply.meta_info.weight_versions if span.end > span.start]
    count = len(reply.output_ids)
    said = reply.meta_info.kept_kv
    kept = [0] * (count - len(said)) + said  # tokens that were sent before anything was kept
    known = {str(version): version for version in allowed}
    versions = [known.get(span.version, -1) for span in spans]
    starts, ends = [span.start for span in spans], [0, *(span.end for span in spans)]
    if -1 in versions or versions != sorted(versions) or [*starts, count] != ends or len(kept) != count:
        raise EngineError(
            f"request {chunk.id}: expected {count} tokens of versions {allowed.start} to {allowed.stop - 1}, SGLang "
            f"used {spans} and knows of {len(kept)} tokens whether keys and values were kept"
        )
    of_token = [version for version, span in zip(versions, spans, strict=True) for _ in range(span.end - span.start)]
    return [
        VersionSpan(version=version, num_tokens=sum(1 for _ in run), kept_kv=kept_kv)
        for (version, kept_kv), run in groupby(zip(of_token, map(bool, kept), strict=True))
    ]


def result_of(
    reply: Reply,
    chunk: ChunkRequest,
    versions: range,
    *,
    submitted_s: Seconds,
    started_s: Seconds,
    finished_s: Seconds,
    account: PoolAccount | None = None,
) -> ChunkResult:
    """Return what a chunk has come to, which SGLang has had under weights of these versions.

    Raises EngineError when a token came from others.
    """
    meta = reply.meta_info
    tokens, logprobs = tokens_of(reply)
    known = len(chunk.prompt) + len(chunk.generated)
    finish = finish_of(reply, chunk, len(chunk.generated) + len(tokens))
    spans = spans_of(reply, chunk, versions)
    latest = VersionSpan(version=versions.stop - 1, num_tokens=0)
    if not spans or (finish == "abort" and spans[-1].version != latest.version):
        spans.append(latest)  # it would have gone on with these weights
    *earlier, last = spans
    return ChunkResult(
        id=chunk.id,
        tokens=tokens,
        logprobs=logprobs,
        finish=finish,
        version=last.version,
        submitted_s=submitted_s,
        started_s=started_s,
        finished_s=finished_s,
        prefilled_tokens=known - meta.cached_tokens if len(tokens) else 0,
        cached_tokens=meta.cached_tokens,
        preemptions=meta.num_retractions,
        drafted_tokens=round(meta.spec_cap_length * meta.spec_verify_ct),
        accepted_tokens=meta.spec_num_correct_drafts,
        kv=_traffic(meta, chunk, finish, account) if len(tokens) else KvTraffic(),
        earlier=tuple(earlier),
        kept_kv=last.kept_kv,
    )


def _traffic(meta: MetaInfo, chunk: ChunkRequest, finish: Finish, account: PoolAccount | None) -> KvTraffic:
    if account is None:
        return KvTraffic()
    found = meta.cached_tokens_details or CachedTokens()
    return account.traffic(
        chunk,
        finish,
        cached_tokens=meta.cached_tokens,
        stored_tokens=found.storage,
        left=meta.kv_left[-1] if meta.kv_left else None,
    )
