"""The index, set up and measured as the peer is."""

import time
from collections.abc import Sequence

import numpy as np

from sestina.bench.drafting.peer import Asked
from sestina.bench.drafting.phrases import VOCAB_SIZE
from sestina.core.units import TokenArray
from sestina.drafting.index import DraftSettings, IndexSettings, SuffixIndex

DEPTH = 24
CHUNK = 64
NOBODY = np.zeros(0, np.int32)


def new_index() -> SuffixIndex:
    """Return an index as the figures are taken with."""
    return SuffixIndex(IndexSettings(vocab_size=VOCAB_SIZE, depth=DEPTH))


def settings_of(asked: Asked) -> DraftSettings:
    """Return what the peer is asked, for the index; a tree may have as many paths as tokens."""
    return DraftSettings(top_k=asked.max_tokens if asked.tree else 1, min_token_prob=asked.min_token_prob)


def start_all(index: SuffixIndex, group: int, count: int, first: int = 0) -> np.ndarray:
    """Start requests `first` to `first + count` and return their handles."""
    return np.array([index.start_request(group, request) for request in range(first, first + count)])


class Rounds:
    """Rows for appends that take turns: in every round, the next chunk of each response that has one."""

    def __init__(self, texts: Sequence[TokenArray], chunk: int = CHUNK) -> None:
        self.rounds = [_round(texts, start, chunk) for start in range(0, max(len(text) for text in texts), chunk)]
        self.num_tokens = sum(len(text) for text in texts)

    def append_to(self, index: SuffixIndex, handles: np.ndarray) -> float:
        """Append every round; returns CPU seconds."""
        start_s = time.thread_time()
        for rows, offsets, bounds, tokens in self.rounds:
            index.append(handles[rows], offsets, bounds, tokens)
        return time.thread_time() - start_s


def _round(texts: Sequence[TokenArray], start: int, chunk: int) -> tuple[np.ndarray, ...]:
    rows = np.array([row for row, text in enumerate(texts) if len(text) > start])
    parts = [texts[row][start : start + chunk] for row in rows]
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return rows, np.full(len(rows), start), bounds, np.concatenate(parts)


def rehearsed_s(index: SuffixIndex, handle: int, text: TokenArray, asked: Asked) -> tuple[float, int, int]:
    """Rehearse a text; returns CPU seconds, steps and drafted tokens."""
    start_s = time.thread_time()
    done = index.rehearse(handle, text, asked.max_tokens, settings_of(asked))
    return time.thread_time() - start_s, done.num_steps, done.num_drafted
