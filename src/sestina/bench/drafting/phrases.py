"""Tokens and phrases, drawn by Zipf's law."""

from bisect import bisect_left
from itertools import accumulate
from random import Random
from typing import TypeAlias

import numpy as np

VOCAB_SIZE = 50_000
GROUP_PHRASES, OWN_PHRASES, COMMON_PHRASES = 1800, 24, 20_000
LEAST_PHRASE, MEAN_PHRASE, MOST_PHRASE = 2, 8.5, 40

Phrase: TypeAlias = list[int]


class Zipf:
    """Ranks from 0 on, rank r with weight (r + 1) ** -exponent."""

    def __init__(self, count: int, exponent: float) -> None:
        self._sums = list(accumulate(1.0 / np.arange(1, count + 1) ** exponent))

    def draw(self, rng: Random) -> int:
        """Return a rank."""
        return bisect_left(self._sums, rng.random() * self._sums[-1])


class Phrases:
    """What all groups of a seed draw from."""

    def __init__(self, seed: int) -> None:
        rng = Random(f"glob-{seed}")
        self._tokens = list(range(VOCAB_SIZE))
        rng.shuffle(self._tokens)
        self._noise = Zipf(VOCAB_SIZE, 1.02)
        self._ranks = {
            "group": Zipf(GROUP_PHRASES, 1.0),
            "own": Zipf(OWN_PHRASES, 0.8),
            "common": Zipf(COMMON_PHRASES, 0.9),
        }
        self.common = self.library(rng, COMMON_PHRASES)

    def token(self, rng: Random) -> int:
        """Return a token of noise."""
        return self._tokens[self._noise.draw(rng)]

    def draw(self, source: str, rng: Random) -> int:
        """Return the number of a phrase of a library."""
        return self._ranks[source].draw(rng)

    def library(self, rng: Random, count: int) -> list[Phrase]:
        """Return new phrases."""
        return [self._phrase(rng) for _ in range(count)]

    def _phrase(self, rng: Random) -> Phrase:
        length = LEAST_PHRASE
        while rng.random() > 1.0 / (MEAN_PHRASE - LEAST_PHRASE + 1) and length < MOST_PHRASE:
            length += 1
        return [self.token(rng) for _ in range(length)]
