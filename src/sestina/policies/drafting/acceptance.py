"""How often drafts are accepted, by position, over the last some dozen speculative steps.

c[j] is the probability that planned token j is offered and accepted, given that those before it were. What has not been
tried counts as PRIOR_WEIGHT tries at the rate of the position before it, and at 0 for the first: what nothing supports
promises nothing (algorithms-and-numbers 1.4: beta[j] = P(first j accepted) = c[1] * ... * c[j]).
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.policies.drafting.step import IntArray

FloatArray: TypeAlias = npt.NDArray[np.float64]

PRIOR_WEIGHT = 4.0


class Acceptance:
    """Learns from each speculative step; forgets by `keep` per step."""

    def __init__(self, *, max_length: int, keep: float = 0.97) -> None:
        self._keep = keep
        self._tried = np.zeros(max_length)
        self._accepted = np.zeros(max_length)
        self._planned = self._drafted = 0.0
        self.survival = self._survival()
        """[max_length + 1]: beta, with beta[0] = 1"""
        self._expected = np.cumsum(self.survival) - 1.0

    @property
    def num_tried(self) -> float:
        """Drafts seen, those of long ago hardly counted."""
        return float(self._tried[0])

    @property
    def rate(self) -> float | None:
        """Return accepted over drafted tokens (RhymeRL's acceptance); None when nothing has been drafted."""
        return float(self._accepted.sum()) / self._drafted if self._drafted else None

    @property
    def mean_conditional(self) -> float:
        """Return alpha of S-D: the mean conditional acceptance over the positions that have been tried."""
        tried = self._tried > 0
        return float((self._accepted[tried] / self._tried[tried]).mean()) if tried.any() else 0.0

    @property
    def offered(self) -> float:
        """Return the share of planned tokens that the drafter has offered; 1 when nothing has been planned."""
        return self._drafted / self._planned if self._planned else 1.0

    def expected(self, lengths: IntArray) -> float:
        """Return the draft tokens of these lengths that are expected to be accepted, all requests together."""
        return float(self._expected[lengths].sum())

    def learn(self, planned: IntArray, drafted: IntArray, accepted: IntArray) -> None:
        """What requests [B] planned, were offered and had accepted."""
        size = len(self._tried)
        self._tried = self._keep * self._tried + _at_least(np.minimum(planned, accepted + 1), size)
        self._accepted = self._keep * self._accepted + _at_least(accepted, size)
        self._planned = self._keep * self._planned + float(planned.sum())
        self._drafted = self._keep * self._drafted + float(drafted.sum())
        self.survival = self._survival()
        self._expected = np.cumsum(self.survival) - 1.0

    def _survival(self) -> FloatArray:
        rate, share = 0.0, 1.0
        survival = [share]
        for tried, accepted in zip(self._tried.tolist(), self._accepted.tolist(), strict=True):
            rate = (accepted + PRIOR_WEIGHT * rate) / (tried + PRIOR_WEIGHT)
            share *= rate
            survival.append(share)
        return np.array(survival)


def _at_least(values: IntArray, size: int) -> FloatArray:
    """Return [size]: how many values are at least 1, 2, ... size."""
    counts = np.bincount(values, minlength=size + 1)
    return np.cumsum(counts[:0:-1])[::-1].astype(np.float64)
