"""An engine of known costs and acceptance that a draft policy drives; all times are exact, none is measured."""

from dataclasses import dataclass, field, replace

import numpy as np

from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.step import StepOutcome, StepView

INDEX = StepCost(
    weights_s=1e-2, kv_token_s=1e-8, row_s=1e-4, row_kv_s=1e-9, plain_sequence_s=1e-5, verify_sequence_s=3e-5,
    draft_token_s=1e-6,
)  # fmt: skip
"""Suffix drafts on a machine where a step of about 100 rows turns from reading weights to arithmetic."""

MODEL = replace(INDEX, draft_weights_s=3e-3, draft_token_s=7e-5)


def view_of(batch, *, probes=0, limit=64, sequence_tokens=1000, arrears_s=0.0):
    return StepView(
        slots=np.arange(batch),
        probes=np.arange(batch) < probes,
        limits=np.full(batch, limit),
        kv_tokens=batch * sequence_tokens,
        arrears_s=arrears_s,
    )


@dataclass
class World:
    """Decodes what `policy` plans; the truth is `cost` times a factor that the policy does not know."""

    policy: object
    cost: StepCost = INDEX
    plain_factor: float = 1.0
    speculative_factor: float = 1.0
    acceptance: float = 0.7
    offered: float = 1.0
    noise: float = 0.0
    seed: int = 0
    elapsed_s: float = 0.0
    equal_s: float = 0.0
    """What plain decoding would have taken for the same tokens."""
    worst_step_s: float = 0.0
    first_step_s: float = 0.0
    plans: list = field(default_factory=list)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def step(self, view, *, rested=0):
        plan = self.policy.plan(view)
        self.plans.append(plan)
        offered = self.rng.random(view.batch) < self.offered
        drafted = np.where(offered, plan.lengths, 0)
        accepted = np.minimum(self.rng.geometric(1 - min(self.acceptance, 0.9999), view.batch) - 1, drafted)
        tokens = int(drafted.sum()) * plan.paths
        seconds = self.seconds(view, plan, tokens, drafted)
        outcome = StepOutcome(
            view=view,
            plan=plan,
            drafted=drafted,
            accepted=accepted,
            draft_tokens=tokens,
            seconds=seconds,
            rested=rested,
        )
        self.policy.learn(outcome)
        plain_s = self.plain_factor * self.cost.plain_s(view.batch, view.kv_tokens)
        self.first_step_s = self.first_step_s or seconds
        self.elapsed_s += seconds
        self.equal_s += plain_s * (1 + accepted.sum() / view.batch)
        self.worst_step_s = max(self.worst_step_s, seconds - plain_s)
        return outcome

    @property
    def most_s(self):
        """What a guarded policy may have taken by now."""
        return self.equal_s / 0.98 + 2 * self.first_step_s + 1.5 * self.worst_step_s

    def seconds(self, view, plan, tokens, drafted):
        jitter = 1 + self.noise * (2 * self.rng.random() - 1)
        if not plan.speculate:
            return self.plain_factor * self.cost.plain_s(view.batch, view.kv_tokens) * jitter
        longest = int(drafted.max())
        step_s = self.cost.speculative_s(view.batch, view.kv_tokens, drafted=tokens, longest=longest)
        return self.speculative_factor * step_s * jitter
