"""Drafts from a store too large for the caches: each live request drafts at its own end, in random order.

Bounds hold for passes of one side right after each other; stated are also passes before each of which the caches were
filled with something else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.drafting.peer import Asked, Peer, PeerStream
from sestina.bench.drafting.sides import CHUNK, DEPTH, settings_of
from sestina.bench.drafting.store import Store, build_ours, build_theirs
from sestina.bench.turns import Say
from sestina.core.units import TokenArray
from sestina.telemetry.measurements import Figure

PASSES = 6
FLUSH_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A draft and what is asked of its latency."""

    name: str
    asked: Asked
    ratio: float
    most_p50_us: float | None = None
    most_p99_us: float | None = None


ASKING = (
    Asking(name="linear 8", asked=Asked(max_tokens=8), ratio=30, most_p50_us=1, most_p99_us=3),
    Asking(name="tree 8", asked=Asked(max_tokens=8, tree=True), ratio=8),
    Asking(name="tree 32", asked=Asked(max_tokens=32, tree=True, min_token_prob=0.02), ratio=7),
)


def cold(store: Store, module: ModuleType | None, say: Say, passes: int = PASSES) -> list[Figure]:
    """Measure latency and memory."""
    index, handles, (build_s, held) = build_ours(store)
    name = f"store of {store.num_tokens / 1e6:.2f} M tokens"
    figures = [
        at_most(f"{name}: resident memory", held, "B per token", 64),
        stated(f"{name}: appends in chunks of {CHUNK}", build_s * 1e9, "ns CPU per token"),
    ]
    peer = streams = None
    if module:
        peer, streams, theirs = build_theirs(module, store)
        figures += [stated(f"{name}: the peer's resident memory", theirs, "B per token")]
    ends = [text[-DEPTH:] for text in store.live]

    def our_spans(order: np.ndarray, asked: Asked) -> np.ndarray:
        return index.time_drafts(handles[order], asked.max_tokens, settings_of(asked))

    def their_spans(order: np.ndarray, asked: Asked) -> np.ndarray:
        return _peer_spans(peer, streams, ends, order, asked) if peer and streams else np.zeros(0)

    rng = np.random.default_rng(1)
    for asking in ASKING:
        for flush in (False, True):
            orders = [rng.permutation(len(handles)) for _ in range(passes)]
            sides = [
                [_percentiles(_pass(side, order, asking.asked, flush)) for order in orders]
                for side in ((our_spans, their_spans) if peer else (our_spans,))
            ]
            say(f"{name}, {asking.name}: p50 {np.median([p[0] for p in sides[0]]):.2f} us")
            figures += _latencies(asking, sides, flush)
    return figures


def _pass(side: Callable[[np.ndarray, Asked], np.ndarray], order: np.ndarray, asked: Asked, flush: bool) -> np.ndarray:
    if flush:
        _fill_caches()
    return side(order, asked)


def _fill_caches() -> None:
    np.ones(FLUSH_BYTES, np.uint8).sum()


def _peer_spans(
    peer: Peer, streams: Sequence[PeerStream], ends: list[TokenArray], order: np.ndarray, asked: Asked
) -> np.ndarray:
    spans: list[int] = []
    for i in order:
        peer.meter.spent_ns = 0
        peer.draft(streams[i], ends[i], asked)
        spans.append(peer.meter.spent_ns)
    return np.array(spans)


def _percentiles(spans_ns: np.ndarray) -> list[float]:
    return [float(np.percentile(spans_ns, p)) / 1e3 for p in (50, 99)]


def _latencies(asking: Asking, sides: Sequence[Sequence[list[float]]], flush: bool) -> list[Figure]:
    name = f"{asking.name} from that store{', caches filled before each pass' if flush else ''}"
    ours, most = sides[0], (None, None) if flush else (asking.most_p50_us, asking.most_p99_us)
    p50, p99 = np.median(ours, axis=0).tolist()
    figures = [
        _bounded(f"{name}: p50, median of {len(ours)} passes", p50, most[0]),
        _bounded(f"{name}: p99, median of {len(ours)} passes", p99, most[1]),
    ]
    for theirs in sides[1:]:
        their_p50, their_p99 = np.median(theirs, axis=0).tolist()
        ratios = [t[0] / o[0] for o, t in zip(ours, theirs, strict=True)]
        figures += [
            stated(f"{name}: the peer's p50", their_p50, "us"),
            stated(f"{name}: the peer's p99", their_p99, "us"),
            at_least(
                f"{name}: the peer's p50 over ours", float(np.median(ratios)), "x", None if flush else asking.ratio
            ),
            stated(f"{name}: lowest of the passes", min(ratios), "x"),
        ]
    return figures


def _bounded(name: str, value: float, most: float | None) -> Figure:
    return stated(name, value, "us") if most is None else at_most(name, value, "us", most)
