"""Drafts from a store too large for the caches: each live request drafts at its own end, in random order.

Bounds hold for passes one after the other; stated are also passes before which the caches were filled with something
else.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import ModuleType

import numpy as np

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.drafting.peer import Asked, Peer, PeerStream
from sestina.bench.drafting.sides import CHUNK, DEPTH, NOBODY, Rounds, new_index, settings_of, start_all
from sestina.bench.drafting.workload import Workload
from sestina.bench.turns import Say
from sestina.core.units import TokenArray
from sestina.drafting.index import SuffixIndex
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Texts of the store, and the first tokens of the live requests."""

    texts: list[list[TokenArray]]
    """By group, for appends that take turns within it."""
    live: list[TokenArray]

    @property
    def num_tokens(self) -> int:
        """Tokens of the store, live requests left out."""
        return sum(len(text) for group in self.texts for text in group)


def make_store(workload: Workload, num_tokens: int, num_live: int, own_tokens: int) -> Store:
    """Return whole groups until `num_tokens` are there, and further responses of theirs."""
    texts: list[list[TokenArray]] = []
    for number in count():
        texts.append(workload.group(number).responses)
        if sum(len(text) for group in texts for text in group) >= num_tokens:
            break
    each = -(-num_live // len(texts))
    live: list[TokenArray] = []
    for number in range(len(texts)):
        live += workload.group(number, first=len(texts[number]), count=each, most=own_tokens).responses
    return Store(texts=texts, live=live[:num_live])


def resident_bytes() -> int:
    """Return what this process holds."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def build_ours(store: Store) -> tuple[SuffixIndex, np.ndarray, list[float]]:
    """Index a store; returns handles of the live requests and CPU seconds and resident bytes per token of the store."""
    rounds = [Rounds(texts) for texts in store.texts]
    index, before, seconds, started = new_index(), resident_bytes(), 0.0, 0
    index.start_group(0, NOBODY)
    for turn in rounds:
        handles = start_all(index, 0, len(turn.rounds[0][0]), started)
        seconds += turn.append_to(index, handles)
        started += len(handles)
    held = resident_bytes() - before
    live = start_all(index, 0, len(store.live), started)
    Rounds(store.live).append_to(index, live)
    return index, live, [seconds / store.num_tokens, held / store.num_tokens]


def build_theirs(module: ModuleType, store: Store) -> tuple[Peer, list[PeerStream], float]:
    """Index a store with the peer, its trees of single finished requests left out; returns its bytes per token."""
    peer, before = Peer(module, DEPTH, time.perf_counter_ns), resident_bytes()
    for texts in store.texts:
        streams = [peer.start(NOBODY) for _ in texts]
        for start in range(0, max(len(text) for text in texts), CHUNK):
            for stream, text in zip(streams, texts, strict=True):
                if len(text) > start:
                    peer.store(stream, text[start : start + CHUNK])
    held = resident_bytes() - before
    live = [peer.start(NOBODY) for _ in store.live]
    for stream, text in zip(live, store.live, strict=True):
        peer.append(stream, text)
    return peer, live, held / store.num_tokens


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

    def spans(asked: Asked, order: np.ndarray, flush: bool) -> list[list[float]]:
        taken: list[list[float]] = []
        if flush:
            _fill_caches()
        taken.append(_percentiles(index.time_drafts(handles[order], asked.max_tokens, settings_of(asked))))
        if peer and streams:
            if flush:
                _fill_caches()
            taken.append(_percentiles(_peer_spans(peer, streams, ends, order, asked)))
        return taken

    rng = np.random.default_rng(1)
    for asking in ASKING:
        for flush in (False, True):
            orders = [rng.permutation(len(handles)) for _ in range(passes)]
            sides = list(zip(*(spans(asking.asked, order, flush) for order in orders), strict=True))
            say(f"{name}, {asking.name}: p50 {np.median([p[0] for p in sides[0]]):.2f} us")
            figures += _latencies(asking, sides, flush)
    return figures


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
