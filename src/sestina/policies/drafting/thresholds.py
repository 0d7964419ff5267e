"""Draft lengths by concurrency (Seer v1, section 3.4; algorithms-and-numbers S-E, which gives no numbers).

A table says how many draft tokens a step of a given batch may verify. They are shared out evenly: the length grows as
the batch falls, and once it is at its longest, what is left buys further paths.
"""

from dataclasses import dataclass

import numpy as np

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.lengths import FixedLength, Lengths
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import StepView


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Up to `max_batch` requests: at most `draft_tokens` in a step."""

    max_batch: int
    draft_tokens: int


class ThresholdLengths(FixedLength):
    """Implements `LengthPolicy`; beyond the table's last batch nothing is drafted."""

    def __init__(self, table: tuple[Threshold, ...], *, max_length: int, max_paths: int = 1) -> None:
        batches = [row.max_batch for row in table]
        assert batches == sorted(set(batches)), f"batches of a table must rise: {batches}"
        super().__init__(max_length)
        self._table = table
        self._max_paths = max_paths

    def choose(self, view: StepView, acceptance: Acceptance, cost: MeasuredCost) -> Lengths:
        """See `LengthPolicy.choose`."""
        tokens = next((row.draft_tokens for row in self._table if view.batch <= row.max_batch), 0)
        each = tokens // view.batch
        length = min(each, self._length)
        paths = min(max(each // self._length, 1), self._max_paths)
        return Lengths(lengths=np.full(view.batch, length), paths=paths)


def thresholds_of(
    cost: StepCost, *, batches: tuple[int, ...], sequence_tokens: int, slack: float
) -> tuple[Threshold, ...]:
    """Return, for each batch, the most draft tokens whose step takes at most (1 + slack) times a plain one.

    Found by bisection between 0 and 64 per request, which no draft exceeds; lookups draft, no model.
    """
    rows: list[Threshold] = []
    for batch in batches:
        kv_tokens = batch * sequence_tokens
        limit_s = (1 + slack) * cost.plain_s(batch, kv_tokens)
        low, high = 0, 64 * batch
        while low < high:
            middle = (low + high + 1) // 2
            fits = cost.speculative_s(batch, kv_tokens, drafted=middle, longest=0) <= limit_s
            low, high = (middle, high) if fits else (low, middle - 1)
        rows.append(Threshold(max_batch=batch, draft_tokens=low))
    return tuple(rows)
