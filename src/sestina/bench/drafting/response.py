"""One response: a stream of phrases of its group, of its own and of everybody, and of noise."""

from bisect import bisect_left
from itertools import accumulate
from random import Random

import numpy as np

from sestina.bench.drafting.phrases import OWN_PHRASES, Phrase, Phrases
from sestina.core.units import TokenArray

MEDIAN_TOKENS, SPREAD = 2200.0, 0.7 * 0.7
LEAST_TOKENS, MOST_TOKENS = 128, 8192
SHARES = {"group": 0.52, "own": 0.30, "common": 0.05, "noise": 0.18}
"""Parts of the draws, to be divided by their sum."""
FOLLOW, CORRUPT = 0.5, 0.04
SUCCESSORS = (0.6, 0.85)
"""Bounds of the draws that choose the first and the second successor."""


class Response:
    """One stream under way."""

    def __init__(self, phrases: Phrases, rng: Random, library: list[Phrase], successors: list[list[int]]) -> None:
        self._phrases, self._rng, self._library, self._successors = phrases, rng, library, successors
        self._phrase: int | None = None
        """The group's phrase that was said last, if it was said whole."""

    def tokens(self, group_length: float, most: int) -> TokenArray:
        """Return the whole stream."""
        length = int(MEDIAN_TOKENS * np.exp(group_length + self._rng.gauss(0, SPREAD)))
        length = min(max(LEAST_TOKENS, min(MOST_TOKENS, length)), most)
        own, said = self._phrases.library(self._rng, OWN_PHRASES), list[int]()
        while len(said) < length:
            self._say(said, own)
        return np.array(said[:length], np.int32)

    def _say(self, said: list[int], own: list[Phrase]) -> None:
        rng, bounds = self._rng, list(accumulate(SHARES.values()))
        source = rng.random() * bounds[-1]
        if self._phrase is not None and rng.random() < FOLLOW:
            which = bisect_left(SUCCESSORS, rng.random())
            self._phrase = self._successors[self._phrase][which]
            phrase = self._library[self._phrase]
        elif source < bounds[0]:
            self._phrase = self._phrases.draw("group", rng)
            phrase = self._library[self._phrase]
        else:
            self._phrase = None
            if source >= bounds[2]:
                said.append(self._phrases.token(rng))
                return
            number = self._phrases.draw("own" if source < bounds[1] else "common", rng)
            phrase = own[number] if source < bounds[1] else self._phrases.common[number]
        self._repeat(phrase, said)

    def _repeat(self, phrase: Phrase, said: list[int]) -> None:
        for token in phrase:
            if self._rng.random() < CORRUPT:
                said.append(self._phrases.token(self._rng))
                self._phrase = None
                return
            said.append(token)
