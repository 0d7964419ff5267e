"""A store too large for the caches, and live requests that draft from it."""

import time
from dataclasses import dataclass
from itertools import count
from types import ModuleType

import numpy as np

from sestina.bench.drafting.peer import Peer, PeerStream
from sestina.bench.drafting.sides import CHUNK, DEPTH, NOBODY, Rounds, new_index, start_all
from sestina.bench.drafting.workload import Workload
from sestina.core.units import TokenArray
from sestina.drafting.index import SuffixIndex


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
