"""The rows of one forward pass, and what they are for."""

from dataclasses import dataclass

import numpy as np

from sestina.rollout.drafts import Branches, Drafts, IntArray, places
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.verify import Verified


@dataclass(slots=True)
class Step:
    """R rows of one forward pass, of which S draw a token: first the N requests that decode, then the prefills."""

    slots: IntArray
    """[R] row of the slot table."""
    cells: IntArray
    """[R] index in its sequence where the row's token, keys and values are kept."""
    positions: IntArray
    """[R] index of the token in its sequence; another one than the cell in a draft tree."""
    sampled: IntArray | None
    """[S] indices into the R rows; None when every row draws, as in pure decoding."""
    branches: Branches | None
    """What the rows of draft trees see; None without trees."""
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

    @property
    def rows(self) -> IntArray:
        """[requests that draw] how many rows of the step each has."""
        return np.ones_like(self.requests) if self.drafts is None else self.drafts.counts + 1


def rows_of(slots: IntArray, cells: IntArray) -> Step:
    """Return a step of one row for each slot, at that cell, which draws what follows."""
    return Step(slots, cells, cells, None, None, slots, None, [])


def lay_out(decoding: IntArray, drafts: Drafts | None, prefills: list[tuple[Job, int]], table: SlotTable) -> Step:
    """Write a plan as rows: one per decoding request and drafted token, then the tokens of each prefill."""
    first = table.computed[decoding]
    rows = np.ones_like(first) if drafts is None else drafts.counts + 1
    slots = np.repeat(decoding, rows)
    root = np.repeat(first, rows)
    cells = positions = root
    branches = None
    if drafts is not None:
        cells, positions = root + places(rows), root + drafts.depths()
        branches = drafts.branches()
    step = Step(slots, cells, positions, None, branches and _placed(branches, root), decoding, drafts, prefills)
    return _with_prefills(step, table) if prefills else step


def _with_prefills(step: Step, table: SlotTable) -> Step:
    counts = np.array([count for _, count in step.prefills], np.int32)
    filling = np.array([job.slot for job, _ in step.prefills], np.int32)
    starts = table.computed[filling]
    whole = starts + counts == table.length[filling]
    last = len(step.slots) + np.cumsum(counts, dtype=np.int32) - 1
    cells = np.repeat(starts, counts) + places(counts)
    return Step(
        slots=np.concatenate([step.slots, np.repeat(filling, counts)]),
        cells=np.concatenate([step.cells, cells]),
        positions=np.concatenate([step.positions, cells]),
        sampled=np.concatenate([np.arange(len(step.slots), dtype=np.int32), last[whole]]),
        branches=step.branches and step.branches.padded(len(cells)),
        requests=np.concatenate([step.requests, filling[whole]]),
        drafts=step.drafts and step.drafts.padded(int(whole.sum())),
        prefills=step.prefills,
    )


def _placed(branches: Branches, root: IntArray) -> Branches:
    """Turn rows into cells."""
    return Branches(branches.offsets, np.repeat(root, np.diff(branches.offsets)) + branches.cells)


def moves(step: Step, verified: Verified) -> tuple[IntArray, IntArray, IntArray]:
    """Return slot, cell and new cell of every token whose keys and values must move: the path taken lies scattered."""
    place = np.arange(verified.path.shape[1])
    moved = (verified.path != place) & (place < verified.counts[:, None])
    request, to = np.nonzero(moved)
    assert step.drafts is not None, "only drafts are verified"
    root = step.cells[np.cumsum(step.drafts.counts + 1) - step.drafts.counts - 1][request]
    return step.requests[request], root + verified.path[moved], (root + to).astype(np.int32)
