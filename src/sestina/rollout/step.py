"""The rows of one forward pass, and what they are for."""

from dataclasses import dataclass

import numpy as np

from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable, places
from sestina.rollout.verify import Drafts, IntArray


@dataclass(slots=True)
class Step:
    """R rows of one forward pass, of which S draw a token: first the N requests that decode, then the prefills."""

    slots: IntArray
    """[R] row of the slot table."""
    positions: IntArray
    """[R] index of the token in its sequence."""
    sampled: IntArray | None
    """[S] indices into the R rows; None when every row draws, as in pure decoding."""
    requests: IntArray
    """[requests that draw] row of the slot table; one row of the step each, and one more for each drafted token."""
    drafts: Drafts | None
    """Of `requests`; None when nothing is drafted."""
    prefills: list[tuple[Job, int]]
    """Requests in prefill and how many of their tokens are in this step."""

    @property
    def drawing(self) -> IntArray:
        """[S] row of the slot table of each row that draws a token."""
        return self.slots if self.sampled is None else self.slots[self.sampled]


def lay_out(decoding: IntArray, drafts: Drafts | None, prefills: list[tuple[Job, int]], table: SlotTable) -> Step:
    """Write a plan as rows: one per decoding request and drafted token, then the tokens of each prefill."""
    slots, positions = decoding, table.computed[decoding]
    if drafts is not None:
        slots, positions = _with_drafts(slots, positions, drafts)
    if not prefills:
        return Step(slots, positions, None, decoding, drafts, prefills)
    counts = np.array([count for _, count in prefills], np.int32)
    filling = np.array([job.slot for job, _ in prefills], np.int32)
    starts = table.computed[filling]
    last = len(slots) + np.cumsum(counts, dtype=np.int32) - 1
    whole = starts + counts == table.length[filling]
    return Step(
        slots=np.concatenate([slots, np.repeat(filling, counts)]),
        positions=np.concatenate([positions, np.repeat(starts, counts) + places(counts)]),
        sampled=np.concatenate([np.arange(len(slots), dtype=np.int32), last[whole]]),
        requests=np.concatenate([decoding, filling[whole]]),
        drafts=drafts and drafts.padded(int(whole.sum())),
        prefills=prefills,
    )


def _with_drafts(slots: IntArray, positions: IntArray, drafts: Drafts) -> tuple[IntArray, IntArray]:
    rows = drafts.counts + 1
    return np.repeat(slots, rows), np.repeat(positions, rows) + places(rows)
