"""A naive counter, and short ways to drive an index."""

from collections import Counter

import numpy as np

from sestina.drafting.index import DraftSettings, IndexSettings, SuffixIndex


def tokens(*values):
    return np.array(values, np.int32)


def index_of(depth=4, vocab_size=100, **settings):
    return SuffixIndex(IndexSettings(vocab_size=vocab_size, depth=depth, **settings))


def append(index, handle, offset, new):
    row = np.array(new, np.int32)
    index.append(np.array([handle]), np.array([offset]), np.array([0, len(row)]), row)


def draft(index, handle, max_tokens=8, **settings):
    given = {"min_token_prob": 0.0, **settings}
    return index.draft(np.array([handle]), np.array([max_tokens], np.int32), DraftSettings(**given)).draft(0)


class Naive:
    """Counts every string of up to `depth` tokens, occurrence by occurrence."""

    def __init__(self, depth, prompt):
        self.depth = depth
        self.counts = Counter()
        self.prompt = tuple(prompt)
        self.streams = {}
        self._count(self.prompt, 0, 1)

    def start(self, request, weight=1):
        self.streams[request] = (self.prompt, weight)

    def append(self, request, new):
        text, weight = self.streams[request]
        grown = text + tuple(new)
        self._count(grown, len(text), weight)
        self.streams[request] = (grown, weight)

    def _count(self, text, start, weight):
        for end in range(start + 1, len(text) + 1):
            for length in range(1, min(self.depth, end) + 1):
                self.counts[text[end - length : end]] += weight
