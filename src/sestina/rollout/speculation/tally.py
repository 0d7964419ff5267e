"""Counts what became of drafts, by source, place and finished siblings, until it is asked for them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sestina.core.tally import DraftTally, SourceTally
from sestina.core.units import Seconds

SIBLING_CLASSES = 6
"""0, 1, 2 to 3, 4 to 7, 8 to 15, and 16 or more finished siblings."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """The drafts of one step, one entry per request that decoded in it [B]."""

    sources: Counts
    """[B] which of the tally's sources drafted"""
    drafted: Counts
    """[B] tokens, those of all paths"""
    depths: Counts
    """[B] tokens of the longest path"""
    accepted: Counts
    """[B]"""
    siblings: Counts
    """[B] responses of the group that had finished here"""


class Tally:
    """One per rank; `take` returns what was counted, and begins anew."""

    def __init__(self, sources: tuple[str, ...] = (), *, max_length: int = 1) -> None:
        self._sources = sources
        self._length = max_length
        self._begin()

    def _begin(self) -> None:
        num = len(self._sources)
        self._drafted, self._accepted = np.zeros((num, SIBLING_CLASSES), int), np.zeros((num, SIBLING_CLASSES), int)
        self._reached, self._taken = np.zeros((num, self._length + 1), int), np.zeros((num, self._length + 1), int)
        self.steps: Counter[str] = Counter()
        self.draft_s: Seconds = 0.0
        self.step_s: Seconds = 0.0
        self.histories = self.histories_dropped = 0

    def count(self, step: StepCounts) -> None:
        """Take in the drafts of a step."""
        classes = np.minimum(np.frexp(step.siblings)[1], SIBLING_CLASSES - 1)
        np.add.at(self._drafted, (step.sources, classes), step.drafted)
        np.add.at(self._accepted, (step.sources, classes), step.accepted)
        accepted = np.minimum(step.accepted, step.depths)
        np.add.at(self._reached, (step.sources, np.minimum(step.depths, accepted + 1)), 1)
        np.add.at(self._taken, (step.sources, accepted), 1)

    def take(self) -> DraftTally:
        """Return what has been counted since the last call."""
        taken = self.told()
        self._begin()
        return taken

    def told(self) -> DraftTally:
        """Return the same, and count on."""
        return DraftTally(
            sources={name: self._of(i) for i, name in enumerate(self._sources)},
            steps=dict(self.steps),
            draft_s=self.draft_s,
            step_s=self.step_s,
            histories=self.histories,
            histories_dropped=self.histories_dropped,
        )

    def _of(self, source: int) -> SourceTally:
        return SourceTally(
            drafted_tokens=int(self._drafted[source].sum()),
            accepted_tokens=int(self._accepted[source].sum()),
            tried=_at_least(self._reached[source]),
            accepted=_at_least(self._taken[source]),
            drafted_by_siblings=tuple(self._drafted[source].tolist()),
            accepted_by_siblings=tuple(self._accepted[source].tolist()),
        )


def _at_least(lengths: Counts) -> tuple[int, ...]:
    """Return, for 1 and up, how many of the counted lengths are at least that."""
    return tuple(np.cumsum(lengths[:0:-1])[::-1].tolist())
