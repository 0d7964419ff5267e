"""Requests decoded to their ends: whole on one engine, or in chunks, each on another engine than the one before."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sestina.core.errors import DeadlineError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult
from sestina.core.units import LogprobArray, TokenArray
from sestina.rollout.engine import Engine

STALLED_STEPS = 100_000
"""Steps of all engines without an end of a chunk, after which nothing more is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """All chunks of one response."""

    tokens: TokenArray
    logprobs: LogprobArray
    migrations: int
    drafted_tokens: int
    accepted_tokens: int


def decode(
    engines: Sequence[Engine], requests: Sequence[ChunkRequest], *, chunk_tokens: int | None = None
) -> dict[RequestId, Response]:
    """Return the responses; chunks of `chunk_tokens` go round the engines, None decodes whole responses.

    Raises DeadlineError when engines no longer end chunks.
    """
    turn = {request.id: number for number, request in enumerate(requests)}
    begun = {request.id: request for request in requests}
    parts: dict[RequestId, list[ChunkResult]] = {request.id: [] for request in requests}
    for request in requests:
        engines[turn[request.id] % len(engines)].submit(_chunk(request, [], chunk_tokens))
    while any(not engine.idle for engine in engines):
        for result in _ended(engines):
            parts[result.id].append(result)
            if result.finish == "chunk":
                turn[result.id] += 1
                chunk = _chunk(begun[result.id], parts[result.id], chunk_tokens)
                engines[turn[result.id] % len(engines)].submit(chunk)
    return {id: _whole(chunks, moves=len(chunks) - 1 if len(engines) > 1 else 0) for id, chunks in parts.items()}


def _ended(engines: Sequence[Engine]) -> list[ChunkResult]:
    for _ in range(STALLED_STEPS):
        found = [result for engine in engines if not engine.idle for result in engine.step()]
        if found:
            return found
    raise DeadlineError(f"one of {len(engines)} engines to end a chunk (in steps, not seconds)", STALLED_STEPS)


def _chunk(request: ChunkRequest, done: Sequence[ChunkResult], chunk_tokens: int | None) -> ChunkRequest:
    generated = np.concatenate([request.generated, *(chunk.tokens for chunk in done)]).astype(np.int32)
    left = request.max_new_tokens - len(generated)
    return dataclasses.replace(request, generated=generated, max_tokens=min(chunk_tokens or left, left))


def _whole(chunks: Sequence[ChunkResult], *, moves: int) -> Response:
    return Response(
        tokens=np.concatenate([chunk.tokens for chunk in chunks]),
        logprobs=np.concatenate([chunk.logprobs for chunk in chunks]),
        migrations=moves,
        drafted_tokens=sum(chunk.drafted_tokens for chunk in chunks),
        accepted_tokens=sum(chunk.accepted_tokens for chunk in chunks),
    )
