"""Whether a step drafts at all: `always`, `batch`, `roofline`."""

from dataclasses import dataclass
from typing import Protocol

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.forecast import Forecast
from sestina.policies.drafting.step import Reason, StepView


class Toggle(Protocol):
    """Says `on`, or why not."""

    def begin_rollout(self) -> None:
        """A rollout begins."""
        ...

    def verdict(self, view: StepView, forecast: Forecast, promised: float, acceptance: Acceptance) -> Reason:
        """Judge the next step, whose lengths promise `promised` accepted draft tokens."""
        ...


class Always:
    """Implements `Toggle`."""

    def begin_rollout(self) -> None:
        """See `Toggle.begin_rollout`."""

    def verdict(self, view: StepView, forecast: Forecast, promised: float, acceptance: Acceptance) -> Reason:
        """See `Toggle.verdict`."""
        return "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """From this acceptance on, speculation pays up to this batch."""

    acceptance: float
    max_batch: int


class BatchToggle(Always):
    """Implements `Toggle`: off above the profiled batch of the acceptance at hand (RhymeRL, section 4.2; R-C).

    Below the first row's acceptance, and before any has been measured, the first row holds.
    """

    def __init__(self, table: tuple[BatchLimit, ...]) -> None:
        shares = [row.acceptance for row in table]
        assert shares == sorted(set(shares)), f"acceptances of a table must rise: {shares}"
        self._table = table

    def verdict(self, view: StepView, forecast: Forecast, promised: float, acceptance: Acceptance) -> Reason:
        """See `Toggle.verdict`."""
        rate = acceptance.rate or 0.0
        row = next((row for row in reversed(self._table) if rate >= row.acceptance), self._table[0])
        return "on" if view.batch <= row.max_batch else "batch"


class RooflineToggle:
    """Implements `Toggle`: on from the first step whose predicted speedup reaches 1 + margin (E-A, E-C).

    Then on until the rollout ends. It cannot come on before more than `ramp_up` requests have run together once: while
    requests still arrive, a small batch is no sign of the tail.
    """

    def __init__(self, *, margin: float = 0.05, ramp_up: int = 32) -> None:
        self._margin = margin
        self._ramp_up = ramp_up
        self._ramped = self._on = False

    def begin_rollout(self) -> None:
        """See `Toggle.begin_rollout`."""
        self._ramped = self._on = False

    def verdict(self, view: StepView, forecast: Forecast, promised: float, acceptance: Acceptance) -> Reason:
        """See `Toggle.verdict`."""
        self._ramped = self._ramped or view.batch > self._ramp_up
        if not self._ramped:
            return "ramp-up"
        self._on = self._on or forecast.speedup(promised) >= 1 + self._margin
        return "on" if self._on else "roofline"


def batch_limits_of(
    cost: StepCost, *, length: int, sequence_tokens: int, acceptances: tuple[float, ...], most: int
) -> tuple[BatchLimit, ...]:
    """Return, for each acceptance, the largest batch up to `most` at which drafts of `length` are no slower than none.

    Every smaller batch is no slower either. Acceptance is accepted over drafted tokens.
    """
    return tuple(
        BatchLimit(acceptance=share, max_batch=_largest(cost, 1 + share * length, length, sequence_tokens, most))
        for share in acceptances
    )


def _largest(cost: StepCost, tokens: float, length: int, sequence_tokens: int, most: int) -> int:
    for batch in range(1, most + 1):
        kv_tokens = batch * sequence_tokens
        step_s = cost.speculative_s(batch, kv_tokens, drafted=length * batch, longest=length)
        if step_s > tokens * cost.plain_s(batch, kv_tokens):
            return batch - 1
    return most
