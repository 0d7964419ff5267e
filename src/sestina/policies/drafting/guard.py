"""Speculation that is never slower than plain decoding by more than a stated share, whatever was predicted.

A step drafts when it is predicted to pay, from what has been measured, and the ledger is not overdrawn. Two kinds of
steps keep the measurements true. Controls: the first steps of a batch size, and one in `control_every` speculative
steps, are decoded plainly. Probes: while speculation is off, a few requests draft now and then; each is paid for in
full by the allowance even if all it drafts is rejected, and each that loses doubles the wait for the next.
"""

from dataclasses import dataclass

import numpy as np

from sestina.core.units import Seconds
from sestina.policies.drafting.forecast import Forecast, Forecaster
from sestina.policies.drafting.ledger import Ledger
from sestina.policies.drafting.measured import MOST_STALLED, MeasuredCost
from sestina.policies.drafting.step import IntArray, Reason, StepOutcome, StepView

LONGEST_WAIT = 2048
"""Steps between probes that lose, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """Bounds of what may be lost and how much is tried."""

    share: float = 0.005
    """Of plain decoding's time, that speculation may lose."""
    first_steps: float = 2.0
    """Plain steps' time that may be lost beyond that, once: the first probe of a drafter that reads weights of its own
    would else come when a rollout of few responses is half over."""
    most_steps: float = 16.0
    """Plain steps' time that past gains may pay for."""
    margin: float = 0.02
    """Speedup over 1 from which a step is predicted to pay."""
    control_every: int = 50
    min_controls: int = 3
    """Plain steps of a batch size before any speculative one."""
    probe_requests: int = 8
    probe_length: int = 4


class Guard:
    """Judges each step after the toggle; learns from its outcome."""

    def __init__(self, settings: GuardSettings, cost: MeasuredCost) -> None:
        self._settings = settings
        self._cost = cost
        self.ledger = Ledger(share=settings.share, most_steps=settings.most_steps, first_steps=settings.first_steps)
        self._since_control = 0
        self._since_probe = 0
        self._wait = 1
        self._turn = 0
        self._num_probes = 0

    def begin_rollout(self) -> None:
        """A rollout begins: texts and weights have changed, and the next probe need not wait."""
        self._wait = 1

    def verdict(self, view: StepView, expected: Forecast, toggled: Reason) -> Reason:
        """Return what becomes of a step that the toggle has judged."""
        if toggled != "on":
            return toggled
        if self._cost.num_plain(view.batch) < self._settings.min_controls:
            return "control"
        if not self.ledger.covers(0.0):
            return "overdrawn"
        if expected.speedup(expected.accepted) < 1 + self._settings.margin:
            return "slower"
        return "control" if self._since_control >= self._settings.control_every else "on"

    def probe(self, view: StepView, wanted: IntArray, limits: IntArray, forecaster: Forecaster) -> IntArray | None:
        """Return the lengths of a probe that is due and paid for, None if there is none.

        Its requests take turns; fewer draft when the allowance does not cover more. The first probe is of one token and
        the next are twice as long each, as what speculation costs has not been measured then.
        """
        if self._since_probe < self._wait or self._cost.num_plain(view.batch) < self._settings.min_controls:
            return None
        longest = 1 << min(self._num_probes, 16)
        lengths = np.minimum(np.maximum(wanted, self._settings.probe_length), np.minimum(limits, longest))
        able = np.roll(np.flatnonzero(lengths), -self._turn)
        count = min(len(able), self._settings.probe_requests)
        while count:
            probing = np.zeros_like(lengths)
            probing[able[:count]] = lengths[able[:count]]
            if self.ledger.covers(view.arrears_s + forecaster(view, probing, 1).worst_loss_s):
                self._turn += count
                return probing
            count //= 2
        return None

    def learn(self, outcome: StepOutcome) -> None:
        """A step is done; charges it by what was predicted when it was planned."""
        plan, batch = outcome.plan, outcome.view.batch
        self._since_probe += 1 + outcome.rested
        if outcome.rested:
            self.ledger.plain(plan.plain_s, steps=outcome.rested)
        if not plan.speculate:
            self._since_control = 0
            self.ledger.plain(outcome.seconds)
            return
        self._since_control += 1
        tokens = 1.0 + float(outcome.accepted.sum()) / batch
        seconds: Seconds = min(outcome.seconds, MOST_STALLED * plan.expected_s)
        self.ledger.speculative(plain_s=plan.plain_s, tokens_per_request=tokens, seconds=seconds)
        if plan.reason == "probe":
            self._probed(gained=tokens * plan.plain_s >= seconds)

    def _probed(self, *, gained: bool) -> None:
        self._since_probe = 0
        self._num_probes += 1
        self._wait = 1 if gained else min(2 * self._wait, LONGEST_WAIT)
