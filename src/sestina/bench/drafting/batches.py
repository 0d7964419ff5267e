"""Whole batches from Python, appends, and replay of a log."""

import statistics
import time
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.drafting.peer import NO_LIMIT, Peer
from sestina.bench.drafting.sides import CHUNK, DEPTH, Rounds, new_index, start_all
from sestina.bench.drafting.workload import GroupText
from sestina.bench.turns import Say
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.index import DraftSettings
from sestina.telemetry.measurements import Figure

STEPS = 400
DRAFT_TOKENS = 8
REPEATS = 7


def batch_of_64(groups: Sequence[GroupText], module: ModuleType | None, say: Say) -> list[Figure]:
    """One decode step of 4 groups of 16: append a token to each request and draft 8 for each."""
    texts = [text for group in groups[:4] for text in group.responses]
    half = min(len(text) for text in texts) // 2
    steps = min(STEPS, half)
    ours = _our_steps(groups, half, steps)
    name = "batch of 64 from Python, append 1 and draft 8"
    figures = [
        at_most(f"{name}: p50 of {steps} steps", statistics.median(ours), "ms", 0.08),
        stated(f"{name}: p99", float(np.percentile(ours, 99)), "ms"),
    ]
    if module:
        theirs = _their_steps(module, groups, half, steps)
        ratio = statistics.median(theirs) / statistics.median(ours)
        figures += [
            stated(f"{name}: the peer's p50", statistics.median(theirs), "ms"),
            at_least(f"{name}: the peer's p50 over ours", ratio, "x", 12),
        ]
    say(f"{name}: {statistics.median(ours):.4f} ms")
    return figures


def _our_steps(groups: Sequence[GroupText], half: int, steps: int) -> list[float]:
    index, handles = new_index(), list[np.ndarray]()
    for number, group in enumerate(groups[:4]):
        index.start_group(number, group.prompt)
        handles.append(start_all(index, number, len(group.responses)))
        Rounds([text[:half] for text in group.responses]).append_to(index, handles[-1])
    batch = np.concatenate(handles)
    said = [text[half : half + steps] for group in groups[:4] for text in group.responses]
    columns = np.ascontiguousarray(np.stack(said, axis=1))
    offsets, bounds = np.full(len(batch), half), np.arange(len(batch) + 1)
    limits = np.full(len(batch), DRAFT_TOKENS, np.int32)
    buffers, settings = DraftBuffers.for_batch(len(batch), len(batch) * DRAFT_TOKENS), DraftSettings()
    spans: list[float] = []
    for column in columns:
        start_s = time.perf_counter()
        index.append(batch, offsets, bounds, column)
        index.draft(batch, limits, settings, buffers)
        spans.append((time.perf_counter() - start_s) * 1e3)
        offsets += 1
    return spans


def _their_steps(module: ModuleType, groups: Sequence[GroupText], half: int, steps: int) -> list[float]:
    cache = module.SuffixDecodingCache(DEPTH)
    texts: list[np.ndarray] = []
    for group in groups[:4]:
        for text in group.responses:
            cache.start_request(len(texts), group.prompt)
            cache.add_active_response(len(texts), text[:half])
            texts.append(np.concatenate([group.prompt, text]))
    spans: list[float] = []
    end = len(groups[0].prompt) + half
    for step in range(end, end + steps):
        start_s = time.perf_counter()
        for request, text in enumerate(texts):
            cache.add_active_response(request, text[step : step + 1])
            cache.speculate(request, text[step + 1 - DEPTH : step + 1], DRAFT_TOKENS, NO_LIMIT)
        spans.append((time.perf_counter() - start_s) * 1e3)
    return spans


def appends(groups: Sequence[GroupText], module: ModuleType | None, say: Say) -> list[Figure]:
    """Append all responses of a group in turns, and replay the logs this leaves."""
    spans, replays, theirs = list[float](), list[float](), list[float]()
    rounds = [Rounds(group.responses) for group in groups]
    num_tokens = sum(turn.num_tokens for turn in rounds)
    for _ in range(REPEATS):
        index, client = new_index(), new_index()
        append_s = replay_s = 0.0
        for number, (group, turn) in enumerate(zip(groups, rounds, strict=True)):
            index.start_group(number, group.prompt)
            append_s += turn.append_to(index, start_all(index, number, len(group.responses)))
            log = index.fetch_since(number, 0)
            start_s = time.thread_time()
            client.replay(log)
            replay_s += time.thread_time() - start_s
        spans.append(append_s / num_tokens * 1e9)
        replays.append((num_tokens + sum(len(group.prompt) for group in groups)) / replay_s / 1e6)
    name = f"appends, {len(groups[0].responses)} responses in turns, chunks of {CHUNK}"
    figures = [
        at_most(f"{name}: CPU, median of {REPEATS}", statistics.median(spans), "ns per token", 120),
        stated(f"{name}: lowest", min(spans), "ns per token"),
        stated(f"{name}: highest", max(spans), "ns per token"),
    ]
    if module:
        theirs = [_peer_appends(module, groups) / num_tokens for _ in range(2)]
        figures += [stated(f"{name}: the peer's, both of its trees", min(theirs), "ns per token")]
    say(f"{name}: {statistics.median(spans):.1f} ns")
    rate = at_least(f"replay of a log: median of {REPEATS}", statistics.median(replays), "M tokens/s", 8)
    return [*figures, rate]


def _peer_appends(module: ModuleType, groups: Sequence[GroupText]) -> int:
    spent_ns = 0
    for group in groups:
        peer = Peer(module, DEPTH)
        streams = [peer.start(group.prompt) for _ in group.responses]
        for start in range(0, max(len(text) for text in group.responses), CHUNK):
            for stream, text in zip(streams, group.responses, strict=True):
                if len(text) > start:
                    peer.append(stream, text[start : start + CHUNK])
        spent_ns += peer.meter.spent_ns
    return spent_ns
