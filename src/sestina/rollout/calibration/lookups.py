"""Drafting out of a suffix index as a batch decodes: what its speculator does before and after a step.

All drafts are found whole, and none of their tokens is drawn.
"""

import numpy as np

from sestina.policies.drafting.cost import StepCost
from sestina.rollout.calibration.grid import Cell
from sestina.rollout.drafts import Drafts
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.speculator import Outcome
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.rollout.step import lay_out
from sestina.rollout.verify import verify

PERIOD = 40
"""Tokens after which a text repeats itself: longer than what the index counts, so that every draft is found whole."""

UNUSED = StepCost(
    weights_s=1.0,
    kv_token_s=0.0,
    row_s=0.0,
    row_kv_s=0.0,
    plain_sequence_s=0.0,
    verify_sequence_s=0.0,
    draft_token_s=0.0,
)
"""Drafts of a fixed length ask for no cost."""


class Lookups:
    """A batch that is drafted for so many steps, by a speculator with an index of its own."""

    def __init__(self, cell: Cell, length: int, *, vocab_size: int, steps: int) -> None:
        """`length`: draft tokens of a sequence."""
        self._table = _table(cell, length, vocab_size, steps)
        drafted = DraftConfig(
            source="self", length="fixed", toggle="always", guard=False, max_tokens=length, paths=1, min_token_prob=0.1
        )
        self._speculator = SuffixSpeculator(drafted, vocab_size=vocab_size, num_slots=cell.batch)
        self._speculator.begin(UNUSED)
        self._slots = np.arange(cell.batch, dtype=np.int32)
        self._most = np.full(cell.batch, length, np.int32)
        self._drafts: Drafts | None = None

    def propose(self) -> None:
        """Look the drafts of the next step up."""
        self._drafts = self._speculator.propose(self._table, self._slots, self._most)

    def learn(self) -> None:
        """Take the step's tokens into account; each sequence has one more."""
        assert self._drafts is not None, "a text that repeats itself is drafted from"
        self._speculator.learn(self._table, _outcome(self._table, self._slots, self._drafts))
        self._table.length[self._slots] += 1
        self._table.computed[self._slots] += 1


def _table(cell: Cell, length: int, vocab_size: int, steps: int) -> SlotTable:
    """Return the rows of a batch, filled with periodic texts beyond what is known of them."""
    whole = cell.sequence_tokens + steps + 1 + length
    table = SlotTable(num_slots=cell.batch, max_context_tokens=whole)
    random = np.random.default_rng([cell.batch, cell.sequence_tokens])
    for slot in range(cell.batch):
        text = np.resize(random.integers(0, vocab_size, PERIOD).astype(np.int32), whole)
        table.tokens[slot] = text
        table.keys[slot], table.groups[slot], table.limit[slot] = slot + 1, slot, whole
    table.prompts[:] = 1
    table.length[:] = cell.sequence_tokens
    table.computed[:] = cell.sequence_tokens - 1
    return table


def _outcome(table: SlotTable, slots: np.ndarray, drafts: Drafts) -> Outcome:
    """Return a step whose draws are no token of the drafts."""
    rows = int(drafts.counts.sum()) + len(slots)
    room = table.limit[slots] - table.length[slots]
    verified = verify(drafts, np.full(rows, -1, np.int32), np.zeros(rows, np.float32), room, -2)
    return Outcome(step=lay_out(slots, drafts, [], table), verified=verified, seconds=1e-3)
