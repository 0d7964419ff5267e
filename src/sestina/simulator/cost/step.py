"""What an instance's steps take: the closed form of drafting's calibration, with experts that a batch touches."""

import math
from dataclasses import dataclass, field

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.simulator.cost.span import StepLines


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsCost:
    """Reading the experts of all layers that the rows of a step are sent to."""

    all_s: Seconds
    """When every expert is touched."""
    missed: float
    """Share of experts that a row leaves out: 1 - top_k / experts, under even routing"""

    def read_s(self, rows: float) -> Seconds:
        """Return the expected time: an expert is touched unless every row leaves it out."""
        return self.all_s * (1.0 - self.missed**rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCost:
    """Of one instance, all its GPUs at work."""

    step: StepCost
    prefill_row_kv_s: Seconds
    """Arithmetic of a row of prefill over one token of its context."""
    max_step_tokens: int
    """Most rows of prefill in one forward pass."""
    experts: ExpertsCost | None = None
    serving: ServingCost | None = None
    """What chunks add to a step that they join; None: their prefill takes forward passes of its own, and the chunks
    themselves take nothing."""
    _lines: dict[tuple[int, float], StepLines] = field(
        default_factory=dict[tuple[int, float], StepLines], init=False, repr=False, compare=False
    )

    def lines(self, batch: int, drafts: float) -> StepLines:
        """Return the times of a step of `batch` sequences, each with so many draft tokens, in the mean."""
        lines = self._lines.get((batch, drafts))
        if lines is None:
            lines = self._lines[batch, drafts] = self._derived(batch, drafts)
        return lines

    def prefill_s(self, rows: int, cached: int) -> Seconds:
        """Return the time of computing `rows` tokens of one sequence behind `cached` others.

        Row i attends to `cached + i` tokens. Others wait meanwhile.
        """
        if self.serving is not None:
            return self.serving.chunk_of(text=rows + cached, cached=cached)
        if not rows:
            return 0.0
        cost, passes = self.step, math.ceil(rows / self.max_step_tokens)
        read_s = passes * (cost.weights_s + self._experts_s(rows / passes))
        attended = rows * cached + rows * (rows - 1) / 2
        return max(read_s, cost.row_s * rows) + self.prefill_row_kv_s * attended + passes * cost.step_s

    def joining_s(self, rows: int) -> Seconds:
        """Return what a boundary takes at which chunks with `rows` tokens to compute are let in, beside `prefill_s`.

        Where prefill is in the steps of decoding, the first step is counted by whoever decodes; the others that so
        many rows need come on top.
        """
        if self.serving is None:
            return 0.0
        further = (rows - 1) // self.max_step_tokens if rows else 0
        return (1 + further) * self.serving.join_s + further * (self.step.weights_s + self.step.step_s)

    def draft_rows(self, batch: int, *, joined: bool) -> int:
        """Return how many rows a step has for drafts: what decoding leaves, or half of that where chunks join it."""
        left = max(0, self.max_step_tokens - batch)
        return left // 2 if joined else left

    def _experts_s(self, rows: float) -> Seconds:
        return 0.0 if self.experts is None else self.experts.read_s(rows)

    def _derived(self, batch: int, drafts: float) -> StepLines:
        cost, rows = self.step, batch * (1 + drafts)
        further_s = cost.plain_sequence_s * batch
        if drafts:
            each_s = cost.verify_token_s + cost.draft_token_s
            further_s = cost.verify_sequence_s * batch + each_s * batch * drafts
            further_s += cost.verify_step_s + cost.draft_step_s
        return StepLines(
            read_s=cost.weights_s + self._experts_s(rows),
            read_token_s=cost.kv_token_s,
            rows_s=rows * cost.row_s,
            rows_token_s=rows * cost.row_kv_s / batch,
            further_s=further_s + cost.step_s,
        )
