"""Times of drafting out of a suffix index: what its speculator does before and after a step, all drafts found whole."""

from statistics import median

import numpy as np

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.calibration.grid import Cell
from sestina.rollout.drafts import Drafts
from sestina.rollout.meter import meter_for
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.speculator import Outcome
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.rollout.step import lay_out
from sestina.rollout.verify import verify

PERIOD = 40
"""Tokens after which a text repeats itself: longer than what the index counts, so that every draft is found whole."""

REPEATS = 15

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


def lookup_seconds(cell: Cell, *, vocab_size: int) -> dict[int, Seconds]:
    """Return the time of a batch's drafts by draft length, by processor time."""
    return {length: median(_times(cell, length, vocab_size)[1:]) for length in cell.lengths}


def _times(cell: Cell, length: int, vocab_size: int) -> list[Seconds]:
    meter, table = meter_for("cpu"), _table(cell, length, vocab_size)
    drafted = DraftConfig(
        source="self", length="fixed", toggle="always", guard=False, max_tokens=length, paths=1, min_token_prob=0.1
    )
    speculator = SuffixSpeculator(drafted, vocab_size=vocab_size, num_slots=cell.batch)
    speculator.begin(UNUSED)
    slots = np.arange(cell.batch, dtype=np.int32)
    most = np.full(cell.batch, length, np.int32)
    times: list[Seconds] = []
    for _ in range(1 + REPEATS):
        began_s = meter()
        drafts = speculator.propose(table, slots, most)
        proposed_s = meter() - began_s
        assert drafts is not None, "a text that repeats itself is drafted from"
        outcome = _outcome(table, slots, drafts)
        began_s = meter()
        speculator.learn(table, outcome)
        times.append(proposed_s + meter() - began_s)
        table.length[slots] += 1
        table.computed[slots] += 1
    return times


def _table(cell: Cell, length: int, vocab_size: int) -> SlotTable:
    """Return the rows of a batch, filled with periodic texts beyond what is known of them."""
    whole = cell.sequence_tokens + REPEATS + 2 + length
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
