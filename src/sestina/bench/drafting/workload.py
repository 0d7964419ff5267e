"""Responses that share phrases with their siblings, with themselves and with everybody, as those of a model do.

A response is a stream of phrases and of single tokens, both drawn by Zipf's law: phrases of its group (each has three
preferred successors), of its own and of a library common to all groups. Each token of a phrase may be corrupted, which
ends the phrase. Lengths are log-normal, with a factor common to the group. The shares were chosen so that a linear
draft of 8 tokens is accepted as the paper's is (Seer, arXiv 2511.14617, table 2). A response depends on nothing but the
seed and the numbers of its group and its own.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random

import numpy as np

from sestina.core.units import TokenArray

VOCAB_SIZE = 50_000
GROUP_SIZE = 16
PROMPT_TOKENS = 256
MEDIAN_TOKENS, SPREAD = 2200.0, 0.7 * 0.7
LEAST_TOKENS, MOST_TOKENS = 128, 8192
SHARES = {"group": 0.52, "own": 0.30, "common": 0.05, "noise": 0.18}
"""Parts of the draws, to be divided by their sum."""
GROUP_PHRASES, OWN_PHRASES, COMMON_PHRASES = 1800, 24, 20_000
LEAST_PHRASE, MEAN_PHRASE, MOST_PHRASE = 2, 8.5, 40
FOLLOW, CORRUPT = 0.5, 0.04
SUCCESSORS = (0.6, 0.85)
"""Bounds of the draws that choose the first and the second successor."""

Phrase = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupText:
    """A prompt and its responses."""

    prompt: TokenArray
    responses: list[TokenArray]


class Zipf:
    """Ranks from 0 on, rank r with weight (r + 1) ** -exponent."""

    def __init__(self, count: int, exponent: float) -> None:
        self._sums = list(accumulate(1.0 / np.arange(1, count + 1) ** exponent))

    def draw(self, rng: Random) -> int:
        """Return a rank."""
        return bisect_left(self._sums, rng.random() * self._sums[-1])


class Workload:
    """All groups of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = Random(f"glob-{seed}")
        self._tokens = list(range(VOCAB_SIZE))
        rng.shuffle(self._tokens)
        self._noise = Zipf(VOCAB_SIZE, 1.02)
        self._ranks = {
            "group": Zipf(GROUP_PHRASES, 1.0),
            "own": Zipf(OWN_PHRASES, 0.8),
            "common": Zipf(COMMON_PHRASES, 0.9),
        }
        self._common = self._library(rng, COMMON_PHRASES)

    def group(self, number: int, *, first: int = 0, count: int = GROUP_SIZE, most: int = MOST_TOKENS) -> GroupText:
        """Return responses `first` to `first + count` of a group, cut to `most` tokens."""
        rng = Random(f"group-{self.seed}-{number}")
        library = self._library(rng, GROUP_PHRASES)
        successors = [[self._ranks["group"].draw(rng) for _ in range(3)] for _ in range(GROUP_PHRASES)]
        prompt = self._prompt(rng, library)
        length = rng.gauss(0, SPREAD)
        responses = []
        for i in range(first, first + count):
            response = Response(self, Random(f"resp-{self.seed}-{number}-{i}"), library, successors)
            responses.append(response.tokens(length, most))
        return GroupText(prompt=prompt, responses=responses)

    def token(self, rng: Random) -> int:
        """Return a token of noise."""
        return self._tokens[self._noise.draw(rng)]

    def draw(self, source: str, rng: Random) -> int:
        """Return the number of a phrase."""
        return self._ranks[source].draw(rng)

    def common(self, number: int) -> Phrase:
        """Return a phrase of the library that all groups share."""
        return self._common[number]

    def library(self, rng: Random) -> list[Phrase]:
        """Return a response's own phrases."""
        return self._library(rng, OWN_PHRASES)

    def _library(self, rng: Random, count: int) -> list[Phrase]:
        return [self._phrase(rng) for _ in range(count)]

    def _phrase(self, rng: Random) -> Phrase:
        length = LEAST_PHRASE
        while rng.random() > 1.0 / (MEAN_PHRASE - LEAST_PHRASE + 1) and length < MOST_PHRASE:
            length += 1
        return [self.token(rng) for _ in range(length)]

    def _prompt(self, rng: Random, library: list[Phrase]) -> TokenArray:
        prompt: Phrase = []
        while len(prompt) < PROMPT_TOKENS:
            whole = rng.random() < 0.5  # noqa: PLR2004 - half of the draws
            prompt += library[self.draw("group", rng)] if whole else [self.token(rng) for _ in range(4)]
        return np.array(prompt[:PROMPT_TOKENS], np.int32)


class Response:
    """One stream under way."""

    def __init__(self, workload: Workload, rng: Random, library: list[Phrase], successors: list[list[int]]) -> None:
        self._workload, self._rng, self._library, self._successors = workload, rng, library, successors
        self._phrase: int | None = None
        """The group's phrase that was said last, if it was said whole."""

    @cached_property
    def _own(self) -> list[Phrase]:
        return self._workload.library(self._rng)

    def tokens(self, group_length: float, most: int) -> TokenArray:
        """Return the whole stream."""
        length = int(MEDIAN_TOKENS * np.exp(group_length + self._rng.gauss(0, SPREAD)))
        length = min(max(LEAST_TOKENS, min(MOST_TOKENS, length)), most)
        own, said = self._own, list[int]()
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
            self._phrase = self._workload.draw("group", rng)
            phrase = self._library[self._phrase]
        else:
            self._phrase = None
            if source >= bounds[2]:
                said.append(self._workload.token(rng))
                return
            number = self._workload.draw("own" if source < bounds[1] else "common", rng)
            phrase = own[number] if source < bounds[1] else self._workload.common(number)
        self._repeat(phrase, said)

    def _repeat(self, phrase: Phrase, said: list[int]) -> None:
        for token in phrase:
            if self._rng.random() < CORRUPT:
                said.append(self._workload.token(self._rng))
                self._phrase = None
                return
            said.append(token)
