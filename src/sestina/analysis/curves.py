"""What a step's traces say over time, as steps: from each instant on, a value."""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.core.units import Seconds
from sestina.telemetry.traces import ChunkRow, RequestRow

Curve: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Instants in seconds since the offer, and the value from each on."""


def origin_of(requests: Sequence[RequestRow], mode: str) -> Seconds:
    """Return when a step's batch was offered; a response that an earlier start began was offered before.

    Of an asynchronous step, whose responses were offered one after the other, the first offer.
    """
    offers = [row.offered_s for row in requests]
    return min(offers) if mode == "async" else max(offers)


def completed(requests: Sequence[RequestRow], origin_s: Seconds = 0.0) -> Curve:
    """Return the share of responses that are finished."""
    at = np.sort([row.finished_s - origin_s for row in requests])
    share = np.arange(1, len(at) + 1) / len(at)
    return np.concatenate([[0.0], at]), np.concatenate([[0.0], share])


def running(chunks: Sequence[ChunkRow], origin_s: Seconds = 0.0) -> Curve:
    """Return how many chunks are in a batch."""
    starts = np.array([row.started_s for row in chunks]) - origin_s
    ends = np.array([row.finished_s for row in chunks]) - origin_s
    return _summed(np.concatenate([starts, ends]), np.repeat([1.0, -1.0], len(chunks)))


def kv_tokens(
    requests: Sequence[RequestRow], chunks: Sequence[ChunkRow], origin_s: Seconds, points: int = 400
) -> Curve:
    """Return the tokens of keys and values that running chunks hold, each growing evenly.

    A prompt counts for every response to it, whether or not they share its pages.
    """
    held = dict(_held(requests, chunks))
    starts = np.array([row.started_s for row in chunks]) - origin_s
    ends = np.array([row.finished_s for row in chunks]) - origin_s
    before = np.array([held[row.group, row.sample, row.chunk] for row in chunks], float)
    grown = np.array([row.tokens for row in chunks], float)
    at = np.linspace(0.0, max(ends.max(initial=0.0), 1e-9), points)
    values = np.zeros(points)
    for start, end, least, more in zip(starts, ends, before, grown, strict=True):
        inside = (at >= start) & (at < end)
        values[inside] += least + more * (at[inside] - start) / max(end - start, 1e-12)
    return at, values


def happened(at_s: Sequence[Seconds], counts: Sequence[int], origin_s: Seconds = 0.0) -> Curve:
    """Return how many of something have happened until an instant."""
    return _summed(np.array(at_s) - origin_s, np.array(counts, float))


def lanes_of(chunks: Sequence[ChunkRow]) -> list[int]:
    """Return a lane for each chunk, the lowest that is free when it starts."""
    running: list[tuple[Seconds, int]] = []
    free: list[int] = []
    lanes = [0] * len(chunks)
    for index in sorted(range(len(chunks)), key=lambda i: chunks[i].started_s):
        while running and running[0][0] <= chunks[index].started_s:
            heappush(free, heappop(running)[1])
        lanes[index] = heappop(free) if free else len(running)
        heappush(running, (chunks[index].finished_s, lanes[index]))
    return lanes


def _held(requests: Sequence[RequestRow], chunks: Sequence[ChunkRow]) -> Sequence[tuple[tuple[int, int, int], int]]:
    context = {(row.group, row.sample): row.prompt_tokens for row in requests}
    found: list[tuple[tuple[int, int, int], int]] = []
    for row in sorted(chunks, key=lambda row: row.chunk):
        key = row.group, row.sample
        found.append(((*key, row.chunk), context[key]))
        context[key] += row.tokens
    return found


def _summed(at: npt.NDArray[np.float64], changes: npt.NDArray[np.float64]) -> Curve:
    order = np.argsort(at, kind="stable")
    return np.concatenate([[0.0], at[order]]), np.concatenate([[0.0], np.cumsum(changes[order])])
