"""When to draft how much: the draft policy of one engine, asked for a step and told what came of it."""

import time
from typing import TypeAlias

import numpy as np

from sestina.core.ids import EVAL_GROUPS
from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.lengths import Totals
from sestina.policies.drafting.policy import DraftPolicy
from sestina.policies.drafting.step import IntArray as SlotArray
from sestina.policies.drafting.step import StepOutcome, StepPlan, StepView
from sestina.rollout.drafts import IntArray
from sestina.rollout.engine import Clock
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.met import Met
from sestina.rollout.speculation.policy import build_policy
from sestina.rollout.speculation.speculator import Outcome

Planned: TypeAlias = tuple[StepView, StepPlan]

SHARE = 0.001
"""Of a plain step's time, that deciding on it may take on average: after a decision against drafts, some steps pass."""

MOST_REST = 2048
"""Steps that pass at most."""


class Decisions:
    """Owns the policy; new weights end a rollout, of which the length policy is told. Evaluations do not count."""

    def __init__(self, config: DraftConfig, num_slots: int, watch: Clock = time.thread_time) -> None:
        """`watch` times what deciding takes."""
        self._config = config
        self._watch = watch
        self._num_slots = num_slots
        self._policy: DraftPolicy | None = None
        self._met = Met(num_slots)
        self.planned: Planned | None = None
        """What was decided for the step under way; None when it was not decided about."""
        self._spent_s = 0.0
        self._rested = 0
        """Steps that nobody decided about, since the policy was told of one."""
        self._drafted = self._accepted = 0

    @property
    def policy(self) -> DraftPolicy:
        """What decides; raises AssertionError before there are weights."""
        assert self._policy is not None, "begin comes first"
        return self._policy

    def begin(self, cost: StepCost) -> None:
        """Weights are there; `cost` is what steps take, of which only the first counts."""
        if self._policy is None:
            self._policy = build_policy(self._config, cost, self._num_slots)
        self._policy.end_rollout(Totals(drafted=self._drafted, accepted=self._accepted))
        self._policy.begin_rollout()
        self._drafted = self._accepted = 0

    def rested(self, steps: int) -> None:
        """So many steps have passed that nobody decided about."""
        self._rested += steps

    def plan(self, table: SlotTable, slots: IntArray, most: IntArray, arrears_s: Seconds = 0.0) -> StepPlan:
        """Decide on drafts of at most `most` [N] tokens for the requests in these rows [N].

        Drafting would begin with what takes `arrears_s`.
        """
        began_s = self._watch()
        self._meet(table, slots)
        view = StepView(
            slots=slots.astype(np.int64),
            probes=table.samples[slots] == 0,
            limits=np.maximum(most, 0).astype(np.int64),
            kv_tokens=int(table.length[slots].sum()),
            arrears_s=arrears_s,
        )
        plan = self.policy.plan(view)
        self.planned = view, plan
        self._spent_s = self._watch() - began_s
        return plan

    def withdraw(self) -> None:
        """What was decided is not carried out."""
        self.planned = None

    def leave(self, job: Job) -> None:
        """A chunk has left the engine; if it comes back, it is met anew."""
        self._met.forget(job.key)

    def learn(self, table: SlotTable, outcome: Outcome) -> int:
        """Take in what a step came to; one that prefills too says nothing of the time that drafts take.

        Return how many steps are to pass undecided, so that deciding takes no more than its share of their time.
        """
        planned, self.planned = self.planned, None
        if planned is None:
            return 0
        began_s = self._watch()
        _, plan = planned
        self._count(table, planned, outcome)
        # Without drafts the step would not have waited for the decision.
        seconds = outcome.seconds if plan.speculate else max(outcome.seconds - self._spent_s, 0.0)
        if not outcome.step.prefills:
            rested, self._rested = self._rested, 0
            self.policy.learn(_account(planned, outcome, seconds, rested))
        if plan.speculate or plan.reason in ("control", "no-room"):
            return 0
        spent_s = self._spent_s + self._watch() - began_s
        return min(MOST_REST, int(spent_s / (SHARE * max(seconds, 1e-9))))

    def _meet(self, table: SlotTable, slots: IntArray) -> None:
        """Tell the policy of rows that others have taken."""
        fresh = self._met.fresh(table, slots)
        if len(fresh):
            self.policy.start(fresh.astype(np.int64))

    def _count(self, table: SlotTable, planned: Planned, outcome: Outcome) -> None:
        view, _ = planned
        drafted, accepted = _along_a_path(planned, outcome)
        training = table.groups[view.slots] < EVAL_GROUPS
        self._drafted += int(drafted[training].sum())
        self._accepted += int(accepted[training].sum())


def _along_a_path(planned: Planned, outcome: Outcome) -> tuple[SlotArray, SlotArray]:
    """Return tokens drafted and accepted [batch]; of a tree's paths one can be accepted, so one counts."""
    view, plan = planned
    drafts, verified = outcome.step.drafts, outcome.verified
    nothing = np.zeros(view.batch, np.int64)
    drafted = nothing if drafts is None else np.minimum(drafts.counts[: view.batch], plan.lengths)
    return drafted, nothing if verified is None else np.minimum(verified.accepted[: view.batch], drafted)


def _account(planned: Planned, outcome: Outcome, seconds: Seconds, rested: int) -> StepOutcome:
    """Return what a step came to, as policies take it."""
    drafts, (view, plan) = outcome.step.drafts, planned
    drafted, accepted = _along_a_path(planned, outcome)
    return StepOutcome(
        view=view,
        plan=plan,
        drafted=drafted,
        accepted=accepted,
        draft_tokens=0 if drafts is None else int(drafts.counts.sum()),
        seconds=seconds,
        rested=rested,
    )
