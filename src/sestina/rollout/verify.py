"""Verification of drafts: how much of a draft is what the model draws.

The noise of a position is fixed before anything is drafted (core.noise), so "accept while draft and draw are equal"
keeps exactly the tokens that decoding one at a time would draw, at any temperature. For a draft that is a fixed token
this accepts with the model's probability of it, as rejection sampling does (docs/decisions/0003).

Symbols: N requests, K longest draft. A request has one row for its last known token and one for each drafted token.
"""

from dataclasses import dataclass

import numpy as np

from sestina.core.units import LogprobArray, TokenArray
from sestina.rollout.drafts import Drafts, IntArray


@dataclass(frozen=True, slots=True)
class Verified:
    """What N requests have gained."""

    tokens: TokenArray
    """[gained tokens of all requests, one after the other]"""
    logprobs: LogprobArray
    """[as tokens]"""
    counts: IntArray
    """[N] gained tokens, at least 1: the accepted ones and the draw after them, cut at `room` and where they end."""
    accepted: IntArray
    """[N] drafted tokens that were drawn."""
    path: IntArray
    """[N, longest path] rows of the request whose draws were gained, of which the first `counts` mean something."""


def verify(
    drafts: Drafts,
    drawn: TokenArray,
    logprobs: LogprobArray,
    room: IntArray,
    stop_token: int,
    turns: TokenArray | None = None,
) -> Verified:
    """Hold drafts against draws.

    `drawn` and `logprobs` are [sum of counts + N]: for each request the draws of its rows. `room` [N] is how many
    tokens a request may gain,
    `turns` [N] the token that ends its turn, if there is one.
    """
    row = np.arange(drafts.tokens.shape[1] + 1)
    first = np.cumsum(drafts.counts + 1) - drafts.counts - 1
    rows = first[:, None] + np.minimum(row, drafts.counts[:, None])
    path, accepted = _follow(drafts, drawn[rows])
    rows = np.take_along_axis(rows, path, axis=1)
    table = drawn[rows]
    place = np.arange(table.shape[1])
    ends = table == stop_token
    if turns is not None:
        ends |= table == turns[:, None]
    stops = ends & (place <= accepted[:, None])
    stopped_at = np.where(stops.any(axis=1), stops.argmax(axis=1), len(row)).astype(np.int32)
    counts = np.minimum(np.minimum(accepted + 1, stopped_at + 1), room)
    gained = place < counts[:, None]
    return Verified(
        tokens=table[gained],
        logprobs=logprobs[rows][gained],
        counts=counts,
        accepted=np.minimum(accepted, counts),
        path=path,
    )


def _follow(drafts: Drafts, drawn: TokenArray) -> tuple[IntArray, IntArray]:
    """Return the rows of each request from its root as far as draws lead, and how many drafted ones these are."""
    there = np.arange(drafts.tokens.shape[1]) < drafts.counts[:, None]
    if drafts.parents is None:
        agree = (drawn[:, :-1] == drafts.tokens) & there
        path = np.broadcast_to(np.arange(drawn.shape[1], dtype=np.int32), drawn.shape)
        return path, agree.cumprod(axis=1).sum(axis=1, dtype=np.int32)
    at = np.zeros(len(drawn), np.int32)
    path, accepted = [at], np.zeros(len(drawn), np.int32)
    while True:
        follows = (
            (drafts.parents == at[:, None] - 1) & (drafts.tokens == drawn[np.arange(len(at)), at][:, None]) & there
        )
        found = follows.any(axis=1)
        if not found.any():
            return np.stack(path, axis=1), accepted
        at = np.where(found, follows.argmax(axis=1).astype(np.int32) + 1, at)
        there &= found[:, None]
        accepted += found
        path.append(at)
