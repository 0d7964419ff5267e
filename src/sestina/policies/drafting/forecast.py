"""What a step with given draft lengths is expected to take and to produce."""

from dataclasses import dataclass

from sestina.core.units import Seconds
from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import IntArray, StepView


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One step, decoded plainly and with drafts."""

    batch: int
    plain_s: Seconds
    speculative_s: Seconds
    accepted: float
    """Draft tokens expected to be accepted, all requests together."""

    def speedup(self, accepted: float) -> float:
        """Return plain time over speculative time per token if `accepted` draft tokens are (E-A)."""
        return (1.0 + accepted / self.batch) * self.plain_s / self.speculative_s

    @property
    def worst_loss_s(self) -> Seconds:
        """What the step loses on plain decoding if no draft is accepted."""
        return self.speculative_s - self.plain_s


class Forecaster:
    """Predicts steps from what has been measured so far."""

    def __init__(self, cost: MeasuredCost, acceptance: Acceptance) -> None:
        self._cost = cost
        self._acceptance = acceptance

    def __call__(self, view: StepView, lengths: IntArray, paths: int) -> Forecast:
        """Predict a step; every path is taken to be as long as the longest."""
        batch, kv_tokens = view.batch, view.kv_tokens
        drafted = float(lengths.sum()) * paths * self._acceptance.offered
        longest = int(lengths.max(initial=0))
        return Forecast(
            batch=batch,
            plain_s=self._cost.plain_s(batch, kv_tokens),
            speculative_s=self._cost.speculative_s(batch, kv_tokens, drafted=drafted, longest=longest),
            accepted=self._acceptance.expected(lengths),
        )
