"""Length policy, toggle and guard behind one question per engine step: `plan`, answered for by `learn`."""

from collections import Counter

import numpy as np

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.forecast import Forecast, Forecaster
from sestina.policies.drafting.guard import Guard, GuardSettings
from sestina.policies.drafting.lengths import LengthPolicy, Lengths, Totals
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import IntArray, Reason, StepOutcome, StepPlan, StepView
from sestina.policies.drafting.toggles import Toggle

PROBED: frozenset[Reason] = frozenset(("no-length", "batch", "roofline", "slower"))
"""Reasons that rest on an expectation, which probes keep measured."""


class DraftPolicy:
    """One per engine. Deterministic: equal calls give equal plans.

    Drafts have `paths` paths or as many more as the length policy says; probes have one.
    Without a guard the toggle alone decides, and no plain or probing steps are interspersed.
    """

    def __init__(
        self,
        lengths: LengthPolicy,
        toggle: Toggle,
        *,
        cost: StepCost,
        max_length: int,
        paths: int = 1,
        guard: GuardSettings | None = None,
    ) -> None:
        self._lengths = lengths
        self._toggle = toggle
        self._max_length = max_length
        self._paths = paths
        self.cost = MeasuredCost(cost)
        self.acceptance = Acceptance(max_length=max_length)
        self._forecaster = Forecaster(self.cost, self.acceptance)
        self._guard = None if guard is None else Guard(guard, self.cost)
        self.reasons: Counter[Reason] = Counter()
        """Steps planned, by reason."""

    @property
    def allowance_s(self) -> float | None:
        """What speculation may lose next, in seconds; None without a guard."""
        return None if self._guard is None else self._guard.ledger.allowance_s

    def begin_rollout(self) -> None:
        """A rollout begins."""
        self._toggle.begin_rollout()
        if self._guard is not None:
            self._guard.begin_rollout()

    def end_rollout(self, totals: Totals) -> None:
        """A training rollout is done; `totals` are of this engine."""
        self._lengths.end_rollout(totals)

    def start(self, slots: IntArray) -> None:
        """Requests took these slots of the engine's table."""
        self._lengths.start(slots)

    def plan(self, view: StepView) -> StepPlan:
        """Decide the next step, of at least one request."""
        chosen = self._lengths.choose(view, self.acceptance, self.cost)
        limits = np.minimum(view.limits, self._max_length)
        wanted = Lengths(lengths=np.minimum(chosen.lengths, limits), paths=max(chosen.paths, self._paths))
        expected = self._forecaster(view, wanted.lengths, wanted.paths)
        reason = self._judge(view, wanted, limits, expected)
        if reason in PROBED and self._guard is not None:
            probing = self._guard.probe(view, wanted.lengths, limits, self._forecaster)
            if probing is not None:
                reason, wanted = "probe", Lengths(lengths=probing)
                expected = self._forecaster(view, probing, 1)
        self.reasons[reason] += 1
        return _drafting(wanted, reason, expected) if reason in ("on", "probe") else _plain(reason, expected)

    def learn(self, outcome: StepOutcome) -> None:
        """The step that was planned last is done; told once, before the next is planned."""
        view, plan, seconds = outcome.view, outcome.plan, outcome.seconds
        assert (outcome.accepted <= outcome.drafted).all(), "more accepted than drafted"
        assert (outcome.drafted <= plan.lengths).all(), "more drafted than planned"
        if self._guard is not None:
            self._guard.learn(outcome)
        if not plan.speculate:
            self.cost.learn_plain(view.batch, view.kv_tokens, seconds)
            return
        longest = int(outcome.drafted.max(initial=0))
        if longest:
            self.cost.learn_speculative(
                view.batch, view.kv_tokens, seconds, drafted=outcome.draft_tokens, longest=longest
            )
        self.acceptance.learn(plan.lengths, outcome.drafted, outcome.accepted)
        self._lengths.learn(outcome)

    def _judge(self, view: StepView, wanted: Lengths, limits: IntArray, expected: Forecast) -> Reason:
        if not limits.any():
            return "no-room"
        if not wanted.lengths.any():
            return "no-length"
        promised = self._lengths.promised(wanted.lengths, self.acceptance)
        reason = self._toggle.verdict(view, expected, promised, self.acceptance)
        return reason if self._guard is None else self._guard.verdict(view, expected, reason)


def _drafting(wanted: Lengths, reason: Reason, expected: Forecast) -> StepPlan:
    return StepPlan(
        lengths=wanted.lengths,
        paths=wanted.paths,
        reason=reason,
        plain_s=expected.plain_s,
        expected_s=expected.speculative_s,
        expected_tokens=expected.batch + expected.accepted,
    )


def _plain(reason: Reason, expected: Forecast) -> StepPlan:
    return StepPlan(
        lengths=np.zeros(expected.batch, np.int64),
        paths=1,
        reason=reason,
        plain_s=expected.plain_s,
        expected_s=expected.plain_s,
        expected_tokens=float(expected.batch),
    )
