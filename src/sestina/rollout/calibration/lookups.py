"""Times of drafting out of a suffix index: each request's last token entered, then its draft looked up."""

import time
from statistics import median

import numpy as np

from sestina.core.units import Seconds
from sestina.drafting.index import DraftSettings, IndexSettings, SuffixIndex
from sestina.rollout.calibration.grid import Cell

PERIOD = 40
"""Tokens after which a text repeats itself: longer than what the index counts, so that every draft is found whole."""

REPEATS = 15


def lookup_seconds(cell: Cell, *, vocab_size: int) -> dict[int, Seconds]:
    """Return the time of a batch's drafts by draft length."""
    index = SuffixIndex(IndexSettings(vocab_size=vocab_size))
    random = np.random.default_rng([cell.batch, cell.sequence_tokens])
    steps = len(cell.lengths) * (1 + REPEATS)
    period = random.integers(0, vocab_size, (cell.batch, PERIOD))
    texts = np.tile(period, -(-(cell.sequence_tokens + steps) // PERIOD)).astype(np.int32)
    handles = np.array([_started(index, number) for number in range(cell.batch)])
    known = np.full(cell.batch, cell.sequence_tokens)
    bounds = np.arange(cell.batch + 1)
    index.append(handles, np.zeros_like(known), bounds * cell.sequence_tokens, texts[:, : known[0]].ravel())
    return {length: median(_times(index, handles, texts, known, length)) for length in cell.lengths}


def _started(index: SuffixIndex, number: int) -> int:
    index.start_group(number, np.zeros(1, np.int32))
    return index.start_request(number, 0)


def _times(index: SuffixIndex, handles: np.ndarray, texts: np.ndarray, known: np.ndarray, length: int) -> list[Seconds]:
    """Mutates `known` [B]: one token more for each repetition."""
    bounds, wanted = np.arange(len(handles) + 1), np.full(len(handles), length, np.int32)
    times: list[Seconds] = []
    for _ in range(1 + REPEATS):
        began_s = time.perf_counter()
        index.append(handles, known, bounds, np.ascontiguousarray(texts[:, known[0]]))
        index.draft(handles, wanted, DraftSettings())
        times.append(time.perf_counter() - began_s)
        known += 1
    return times[1:]
