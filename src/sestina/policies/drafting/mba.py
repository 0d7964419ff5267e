"""Draft lengths by marginal benefit (Seer v3, section 3.4, algorithm 1; algorithms-and-numbers S-D).

A budget of draft tokens, g* per request, where g* is the length with the least time per token, is shared by two
classes: probes (the groups' speculative requests) and the others. beta[g] = P(the first g drafts accepted). Two rules:

literal   the listing as printed: one step of length at a time, to the class that gains more. Its lambda multiplies the
          others' benefit, and benefits carry the size of the class, so that few probes are starved; g* is by the
          geometric formula of one mean alpha.
per_cost  token by token to the greatest gain, beta[g + 1], a probe's counting lambda times: probes get about
          ln(lambda) / ln(1 / alpha) tokens more. g* is by measured survival.
"""

from typing import Literal, TypeAlias

import numpy as np

from sestina.policies.drafting.acceptance import Acceptance, FloatArray
from sestina.policies.drafting.lengths import FixedLength, Lengths
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import BoolArray, IntArray, StepView

MbaMode: TypeAlias = Literal["literal", "per_cost"]


class MbaLengths(FixedLength):
    """Implements `LengthPolicy`."""

    def __init__(self, *, mode: MbaMode, max_length: int = 8, weight: float = 2.0) -> None:
        super().__init__(max_length)
        self._mode: MbaMode = mode
        self._weight = weight

    def choose(self, view: StepView, acceptance: Acceptance, cost: MeasuredCost) -> Lengths:
        """See `LengthPolicy.choose`."""
        survival = acceptance.survival
        if self._mode == "per_cost" and not survival[1]:
            return Lengths(lengths=np.zeros(view.batch, np.int64))  # no length gains anything: none need be weighed
        if self._mode == "literal":
            survival = np.power(acceptance.mean_conditional, np.arange(self._length + 1), dtype=np.float64)
        best = best_length(view, survival, cost, offered=acceptance.offered, max_length=self._length)
        limits = {"budget": best * view.batch, "max_length": self._length}
        measured = acceptance.survival.tolist()
        if self._mode == "per_cost":
            return Lengths(lengths=allot_per_cost(view.probes, measured, **limits, weight=self._weight))
        num_probes = int(view.probes.sum())
        probes, others = allot_literal(num_probes, view.batch - num_probes, measured, **limits, weight=self._weight)
        return Lengths(lengths=np.where(view.probes, probes, others))


def best_length(view: StepView, survival: FloatArray, cost: MeasuredCost, *, offered: float, max_length: int) -> int:
    """Return g*: the length for all with the least time per token; 0 is plain decoding, and wins a tie."""
    batch, kv_tokens = view.batch, view.kv_tokens
    produced = np.cumsum(survival).tolist()
    best, least_s = 0, cost.plain_s(batch, kv_tokens)
    for length in range(1, max_length + 1):
        step_s = cost.speculative_s(batch, kv_tokens, drafted=length * batch * offered, longest=length)
        if step_s / produced[length] < least_s:
            best, least_s = length, step_s / produced[length]
    return best


def allot_literal(
    num_probes: int, num_others: int, survival: list[float], *, budget: int, max_length: int, weight: float
) -> tuple[int, int]:
    """Return the lengths of probes and of others by the printed rule; they spend at most `budget` draft tokens.

    `survival` is beta, from beta[0] = 1, with at least `max_length + 1` entries; beyond them it is 0.
    """
    if budget < max(num_probes, 1):
        return 0, 0
    beta = [*survival, 0.0]
    probes, others, left = 1, 0, budget - num_probes
    while left > 0:
        gain = num_probes * (beta[probes] - beta[probes + 1])
        rival = num_others * (beta[others] - beta[others + 1])
        if gain > weight * rival and probes < max_length and left >= num_probes:
            probes, left = probes + 1, left - num_probes
        elif num_others and others < max_length and left >= num_others:
            others, left = others + 1, left - num_others
        else:
            break
    return probes, others


def allot_per_cost(
    probing: BoolArray, survival: list[float], *, budget: int, max_length: int, weight: float
) -> IntArray:
    """Return the lengths [B] that bring most accepted tokens, those of probes counted `weight` times.

    They spend at most `budget` draft tokens; the last step of length goes to the first of its class that it reaches.
    `survival` is as for `allot_literal`.
    """
    classes = [np.flatnonzero(probing), np.flatnonzero(~probing)]
    lengths, reached = np.zeros(len(probing), np.int64), [0, 0]
    beta, weights = [*survival[: max_length + 1], 0.0], (weight, 1.0)
    while budget > 0:
        gains = [w * beta[g + 1] if len(c) else 0.0 for w, g, c in zip(weights, reached, classes, strict=True)]
        best = gains.index(max(gains))
        if gains[best] <= 0:
            break
        lengths[classes[best][:budget]] += 1
        budget -= len(classes[best])
        reached[best] += 1
    return lengths
