"""A draft window for each response (RhymeRL, section 4.2; algorithms-and-numbers R-C).

It starts at 2, grows by 2 to at most 32 while all drafts are accepted, and falls back to 2 at the first rejection.
Where nothing was drafted it stays as it is, which the paper leaves open.
"""

import numpy as np

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.lengths import FixedLength, Lengths
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import IntArray, StepOutcome, StepView


class AimdLengths(FixedLength):
    """Implements `LengthPolicy`; a response that comes back for another chunk starts at 2 again."""

    def __init__(self, *, num_slots: int, start: int = 2, step: int = 2, max_length: int = 32) -> None:
        super().__init__(max_length)
        self._start = start
        self._step = step
        self._windows = np.full(num_slots, start)

    def start(self, slots: IntArray) -> None:
        """See `LengthPolicy.start`."""
        self._windows[slots] = self._start

    def choose(self, view: StepView, acceptance: Acceptance, cost: MeasuredCost) -> Lengths:
        """See `LengthPolicy.choose`."""
        return Lengths(lengths=self._windows[view.slots])

    def learn(self, outcome: StepOutcome) -> None:
        """See `LengthPolicy.learn`."""
        slots = outcome.view.slots
        grown = np.minimum(self._windows[slots] + self._step, self._length)
        after = np.where(outcome.accepted == outcome.drafted, grown, self._start)
        self._windows[slots] = np.where(outcome.drafted > 0, after, self._windows[slots])
