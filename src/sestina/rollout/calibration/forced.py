"""Drafts of a given length, whatever they are good for."""

import numpy as np

from sestina.core.records import Finish
from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.speculator import Outcome


class ForcedDrafts:
    """Implements `Speculator`: `length` random tokens for every request; keeps what steps without prefill held."""

    def __init__(self, vocab_size: int) -> None:
        self.length = 0
        self.steps: list[tuple[int, int]] = []
        """Requests and draft tokens of each."""
        self._vocab_size = vocab_size
        self._random = np.random.default_rng(0)

    def begin(self, cost: StepCost) -> None:
        """See `Speculator.begin`."""

    def propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        """See `Speculator.propose`."""
        if not self.length:
            return None
        size = (len(slots), self.length)
        tokens = self._random.integers(0, self._vocab_size, size).astype(np.int32)
        return Drafts(tokens, np.minimum(most, self.length).astype(np.int32))

    def learn(self, table: SlotTable, outcome: Outcome) -> int:
        """See `Speculator.learn`."""
        step = outcome.step
        if not step.prefills:
            drafted = 0 if step.drafts is None else int(step.drafts.counts.sum())
            self.steps.append((len(step.requests), drafted))
        return 0

    def rested(self, table: SlotTable, slots: IntArray, steps: int, seconds: Seconds) -> None:
        """See `Speculator.rested`: none does."""

    def leave(self, job: Job, finish: Finish) -> None:
        """See `Speculator.leave`."""
