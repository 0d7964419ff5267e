"""Verification of linear drafts: how much of a draft is what the model draws.

The noise of a position is fixed before anything is drafted (core.noise), so "accept while draft and draw are equal"
keeps exactly the tokens that decoding one at a time would draw, at any temperature. For a draft that is a fixed token
this accepts with the model's probability of it, as rejection sampling does (docs/decisions/0003).

Symbols: N requests, K longest draft, M = K + 1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sestina.core.units import LogprobArray, TokenArray

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Drafts:
    """What may follow the last known token of N requests."""

    tokens: TokenArray
    """[N, K] one row per request, of which the first `counts` entries mean something."""
    counts: IntArray
    """[N] drafted tokens, from 0 to K."""

    def at_most(self, limits: IntArray) -> "Drafts":
        """Return drafts cut to these lengths [N]."""
        counts = np.minimum(self.counts, limits)
        return Drafts(self.tokens[:, : max(counts, default=0)], counts)

    def padded(self, requests: int) -> "Drafts":
        """Return drafts of some more requests, for which nothing is drafted."""
        return Drafts(np.pad(self.tokens, ((0, requests), (0, 0))), np.pad(self.counts, (0, requests)))


@dataclass(frozen=True, slots=True)
class Verified:
    """What N requests have gained."""

    tokens: TokenArray
    """[gained tokens of all requests, one after the other]"""
    logprobs: LogprobArray
    """[as tokens]"""
    counts: IntArray
    """[N] gained tokens, at least 1: the accepted ones and the draw after them, cut at a stop token and at `room`."""
    accepted: IntArray
    """[N] drafted tokens that were drawn."""
    stopped: BoolArray
    """[N] the last gained token is the stop token."""


def verify(drafts: Drafts, drawn: TokenArray, logprobs: LogprobArray, room: IntArray, stop_token: int) -> Verified:
    """Hold drafts against draws.

    `drawn` and `logprobs` are [sum of counts + N]: for each request the draw after its last known token, then that
    after each drafted one. `room` [N] is how many tokens a request may gain.
    """
    place = np.arange(drafts.tokens.shape[1] + 1)
    first = np.cumsum(drafts.counts + 1) - drafts.counts - 1
    rows = first[:, None] + np.minimum(place, drafts.counts[:, None])
    table = drawn[rows]
    agree = (table[:, :-1] == drafts.tokens) & (place[:-1] < drafts.counts[:, None])
    accepted = agree.cumprod(axis=1).sum(axis=1, dtype=np.int32)
    stops = (table == stop_token) & (place <= accepted[:, None])
    stopped_at = np.where(stops.any(axis=1), stops.argmax(axis=1), len(place)).astype(np.int32)
    counts = np.minimum(np.minimum(accepted + 1, stopped_at + 1), room)
    gained = place < counts[:, None]
    return Verified(
        tokens=table[gained],
        logprobs=logprobs[rows][gained],
        counts=counts,
        accepted=np.minimum(accepted, counts),
        stopped=stopped_at < counts,
    )
