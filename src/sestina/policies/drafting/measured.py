"""Step times as predicted and then corrected: the closed form times the ratio at which measured steps differ from it.

One ratio for each power of two of the batch size, as that is along which a fitted form is wrong; the median of the
last steps, so that no single stall moves it. Until a size has been measured it borrows the ratio measured last.
"""

from collections import deque

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost

KEPT = 9
"""Steps that a ratio is the median of."""

MOST_STALLED = 4.0
"""A step that takes more than this many times what was predicted stalled for a reason that is not its drafts."""


class MeasuredCost:
    """Answers as `StepCost` does; learns from each step."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._plain = _Ratios()
        self._speculative = _Ratios()

    def plain_s(self, batch: int, kv_tokens: int) -> Seconds:
        """Return the predicted time of a plain step."""
        return self._cost.plain_s(batch, kv_tokens) * self._plain.at(batch)

    def speculative_s(self, batch: int, kv_tokens: int, *, drafted: float, longest: int) -> Seconds:
        """Return the predicted time of a speculative step."""
        ratio = self._speculative.at(batch) if self._speculative.known else self._plain.at(batch)
        return self._cost.speculative_s(batch, kv_tokens, drafted=drafted, longest=longest) * ratio

    def num_plain(self, batch: int) -> int:
        """Return how many plain steps of about this batch size the prediction rests on, up to KEPT."""
        return self._plain.count(batch)

    def learn_plain(self, batch: int, kv_tokens: int, seconds: Seconds) -> None:
        """A plain step took `seconds`."""
        self._plain.learn(batch, seconds / self._cost.plain_s(batch, kv_tokens))

    def learn_speculative(self, batch: int, kv_tokens: int, seconds: Seconds, *, drafted: float, longest: int) -> None:
        """A speculative step took `seconds`."""
        predicted_s = self._cost.speculative_s(batch, kv_tokens, drafted=drafted, longest=longest)
        self._speculative.learn(batch, seconds / predicted_s)


class _Ratios:
    def __init__(self) -> None:
        self._recent: dict[int, deque[float]] = {}
        self._median: dict[int, float] = {}
        self._last = 1.0

    @property
    def known(self) -> bool:
        return bool(self._median)

    def at(self, batch: int) -> float:
        return self._median.get(batch.bit_length(), self._last)

    def count(self, batch: int) -> int:
        return len(self._recent.get(batch.bit_length(), ()))

    def learn(self, batch: int, ratio: float) -> None:
        size = batch.bit_length()
        recent = self._recent.setdefault(size, deque(maxlen=KEPT))
        recent.append(ratio)
        self._last = self._median[size] = sorted(recent)[len(recent) // 2]
