"""One draft length for a whole rollout, moved from rollout to rollout (EfficientRollout, algorithm 1; E-C).

After a rollout its block efficiency tau = 1 + a * g is noted, a being accepted over drafted tokens of this engine. Once
`patience` rollouts at this length are noted: all of them at 1 + 0.94 g or more, and the next longer is tried; all at
1 + 0.85 g or less, and the next shorter. Notes of another length do not count, so the window is cleared on a change.
"""

from collections import deque

import numpy as np

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.lengths import FixedLength, Lengths, Totals
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import IntArray, StepView

RISE, FALL = 0.94, 0.85


class LadderLengths(FixedLength):
    """Implements `LengthPolicy`; starts on the lowest rung, taking a cycle to bring as many tokens as it drafts."""

    def __init__(self, rungs: tuple[int, ...] = (5, 7, 9, 11), *, patience: int = 2) -> None:
        assert list(rungs) == sorted(set(rungs)), f"rungs must rise: {rungs}"
        super().__init__(rungs[0])
        self._rungs = rungs
        self._window: deque[float] = deque(maxlen=patience)
        self._block = float(rungs[0])

    @property
    def length(self) -> int:
        """The rung it stands on."""
        return self._length

    def choose(self, view: StepView, acceptance: Acceptance, cost: MeasuredCost) -> Lengths:
        """See `LengthPolicy.choose`."""
        return Lengths(lengths=np.full(view.batch, self._length))

    def promised(self, lengths: IntArray, acceptance: Acceptance) -> float:
        """See `LengthPolicy.promised`; as in the last rollout, a change of rung counted as reaching it."""
        return float(lengths.sum()) * (self._block - 1.0) / self._length

    def end_rollout(self, totals: Totals) -> None:
        """See `LengthPolicy.end_rollout`; a rollout without drafts says nothing."""
        if not totals.drafted:
            return
        self._block = 1.0 + self._length * totals.accepted / totals.drafted
        self._window.append(self._block)
        if len(self._window) == self._window.maxlen:
            self._move()

    def _move(self) -> None:
        rung = self._rungs.index(self._length)
        if min(self._window) >= 1 + RISE * self._length:
            rung = min(rung + 1, len(self._rungs) - 1)
        elif max(self._window) <= 1 + FALL * self._length:
            rung = max(rung - 1, 0)
        if self._rungs[rung] != self._length:
            self._length = self._rungs[rung]
            self._block = float(self._length)
            self._window.clear()
