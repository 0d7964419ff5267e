"""Exact rejection sampling of drafts that were drawn from a distribution of their own.

A token x drawn from q is accepted with probability min(1, p(x) / q(x)), else one is drawn from max(p - q, 0),
normalised: what comes is distributed as p (Leviathan, Kalman, Matias 2023; algorithms-and-numbers E-E). The noise is
counted (core.noise), under keys of its own: x has used that of the position.

Symbols: R drafted tokens, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sestina.rollout.noise_torch import apart, exponentials

_ACCEPT, _REDRAW = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Drafted tokens and where they were drawn."""

    tokens: Tensor
    """[R] int64"""
    logits: Tensor
    """[R, V] of the drafter"""
    temperature: Tensor
    """[R] float32, above 0"""
    keys: Tensor
    """[R] int64 bit pattern of the noise key"""
    positions: Tensor
    """[R] int32"""

    def only(self, rows: Tensor) -> "Drawn":
        """Return those of `rows` [R], a mask."""
        return Drawn(
            tokens=self.tokens[rows],
            logits=self.logits[rows],
            temperature=self.temperature[rows],
            keys=self.keys[rows],
            positions=self.positions[rows],
        )


def redraw(logits: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return tokens [R] int64 and logprobs [R] float32 under the model's `logits` [R, V]: the draft, or another token.

    A token that was not accepted is never returned, as its share of max(p - q, 0) is none.
    """
    chosen = drawn.tokens[:, None]
    model, drafter = (torch.log_softmax(x.double() / drawn.temperature[:, None], -1) for x in (logits, drawn.logits))
    patience = exponentials(apart(drawn.keys, _ACCEPT), drawn.positions, 1)[:, 0]
    accepted = -patience < (model - drafter).gather(1, chosen)[:, 0]
    rest = (model.exp() - drafter.exp()).clamp(min=0)
    arrival = exponentials(apart(drawn.keys, _REDRAW), drawn.positions, logits.shape[1]) / rest
    # Where p and q are equal but for rounding, nothing may be left to draw from.
    kept = accepted | (rest.sum(-1) == 0)
    tokens = torch.where(kept, drawn.tokens, arrival.argmin(-1))
    return tokens, model.gather(1, tokens[:, None])[:, 0].float()
