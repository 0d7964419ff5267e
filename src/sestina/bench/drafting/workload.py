"""Responses that share phrases with their siblings, with themselves and with everybody, as those of a model do.

A response is a stream of phrases and of single tokens, both drawn by Zipf's law: phrases of its group (each has three
preferred successors), of its own and of a library common to all groups. Each token of a phrase may be corrupted, which
ends the phrase. Lengths are log-normal, with a factor common to the group. The shares were set on seed 1 so that a
linear draft of 8 tokens is accepted about as Seer reports (arXiv 2511.14617). A response depends on nothing but the
seed and the numbers of its group and its own.
"""

from dataclasses import dataclass
from random import Random

import numpy as np

from sestina.bench.drafting.phrases import GROUP_PHRASES, Phrase, Phrases
from sestina.bench.drafting.response import MOST_TOKENS, SPREAD, Response
from sestina.core.units import TokenArray

GROUP_SIZE = 16
PROMPT_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupText:
    """A prompt and its responses."""

    prompt: TokenArray
    responses: list[TokenArray]


class Workload:
    """All groups of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._phrases = seed, Phrases(seed)

    def group(self, number: int, *, first: int = 0, count: int = GROUP_SIZE, most: int = MOST_TOKENS) -> GroupText:
        """Return responses `first` to `first + count` of a group, cut to `most` tokens."""
        rng = Random(f"group-{self._seed}-{number}")
        library = self._phrases.library(rng, GROUP_PHRASES)
        successors = [[self._phrases.draw("group", rng) for _ in range(3)] for _ in range(GROUP_PHRASES)]
        prompt = self._prompt(rng, library)
        length = rng.gauss(0, SPREAD)
        responses: list[TokenArray] = []
        for i in range(first, first + count):
            own_rng = Random(f"resp-{self._seed}-{number}-{i}")
            responses.append(Response(self._phrases, own_rng, library, successors).tokens(length, most))
        return GroupText(prompt=prompt, responses=responses)

    def _prompt(self, rng: Random, library: list[Phrase]) -> TokenArray:
        prompt: Phrase = []
        while len(prompt) < PROMPT_TOKENS:
            whole = rng.random() < 0.5  # noqa: PLR2004 - half of the draws
            prompt += (
                library[self._phrases.draw("group", rng)] if whole else [self._phrases.token(rng) for _ in range(4)]
            )
        return np.array(prompt[:PROMPT_TOKENS], np.int32)
