"""How many tokens each request drafts: the Protocol of length policies, and the two that learn nothing."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import IntArray, StepOutcome, StepView


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Draft lengths of a step, before the requests' own limits."""

    lengths: IntArray
    """[B]"""
    paths: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Draft tokens of one rollout on one engine."""

    drafted: int
    accepted: int


class LengthPolicy(Protocol):
    """Chooses lengths step by step; whether they are used is another's decision."""

    def start(self, slots: IntArray) -> None:
        """Requests took these slots; whatever was known of the slots is of others."""
        ...

    def choose(self, view: StepView, acceptance: Acceptance, cost: MeasuredCost) -> Lengths:
        """Return the lengths for the next step."""
        ...

    def promised(self, lengths: IntArray, acceptance: Acceptance) -> float:
        """Return how many draft tokens of these lengths the policy expects to be accepted, all requests together."""
        ...

    def learn(self, outcome: StepOutcome) -> None:
        """A speculative step is done."""
        ...

    def end_rollout(self, totals: Totals) -> None:
        """A training rollout is done; evaluations are not told."""
        ...


class FixedLength:
    """Implements `LengthPolicy`: one length for all, always. Base of those that leave some of it as it is."""

    def __init__(self, length: int) -> None:
        assert length >= 1, f"draft length {length}, at least 1"
        self._length = length

    def start(self, slots: IntArray) -> None:
        """See `LengthPolicy.start`; requests are all alike here."""

    def choose(self, view: StepView, acceptance: Acceptance, cost: MeasuredCost) -> Lengths:
        """See `LengthPolicy.choose`."""
        return Lengths(lengths=np.full(view.batch, self._length))

    def promised(self, lengths: IntArray, acceptance: Acceptance) -> float:
        """See `LengthPolicy.promised`; what has been measured."""
        return acceptance.expected(lengths)

    def learn(self, outcome: StepOutcome) -> None:
        """See `LengthPolicy.learn`; nothing is learnt."""

    def end_rollout(self, totals: Totals) -> None:
        """See `LengthPolicy.end_rollout`; nothing is learnt."""
