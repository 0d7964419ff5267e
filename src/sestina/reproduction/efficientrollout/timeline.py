"""A rollout of one replica as batches over tokens, and what it takes with drafts.

Responses end as they are published to under plain decoding, linearly between the published shares; how many tokens
that time is follows from the cost of a plain step. What is left of the published rollout when a response has reached
its limit is taken for time in which nothing decodes, and drafts do not change it: the one value that is fitted. Drafts
change the time of a token, not which responses are left when it is drawn. The replica is that of the longest response,
which ends the rollout; the others that are left are on all of them alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sestina.core.units import Seconds
from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.forecast import Forecast
from sestina.policies.drafting.step import StepView
from sestina.policies.drafting.toggles import Always, RooflineToggle, Toggle
from sestina.reproduction.efficientrollout.published import (
    FLOPS,
    MOST_TOKENS,
    REPLICAS,
    RESPONSES,
    SHARES,
    Constants,
    Published,
)

SLICES = 2000
"""Of a rollout's time."""
_HALVINGS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Tokens that a response draws while as many of the replica's are left."""

    batch: int
    context: int
    tokens: float


def cost_of(constants: Constants) -> StepCost:
    """Return the step cost that the published constants make."""
    rate = constants.memory_bytes_s
    return StepCost(
        weights_s=constants.weights_bytes / rate,
        kv_token_s=constants.kv_token_bytes / rate,
        row_s=constants.row_flops / FLOPS,
        row_kv_s=constants.row_kv_flops / FLOPS,
        plain_sequence_s=constants.plain_s,
        verify_sequence_s=constants.verify_s,
        draft_token_s=constants.draft_s,
        draft_weights_s=constants.drafter_share * constants.drafter_bytes / rate,
    )


def slices_of(published: Published, cost: StepCost) -> tuple[list[Slice], Seconds]:
    """Return a plainly decoded rollout, and for how long of it nothing decodes."""
    low, high = 0.0, published.rollout_s
    slices = _drawn(published, cost, high)
    if _length(slices) <= MOST_TOKENS:
        return slices, 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _length(_drawn(published, cost, middle)) > MOST_TOKENS else (middle, high)
    return _drawn(published, cost, high), published.rollout_s - high


def rollout_s(
    slices: Sequence[Slice], cost: StepCost, *, length: float, tau: float, toggled: bool
) -> tuple[Seconds, float]:
    """Return the time with drafts of `length`, `tau` tokens a cycle, and the share of plain steps among all."""
    toggle = RooflineToggle() if toggled else Always()
    total_s, plain, steps = 0.0, 0.0, 0.0
    for each in slices:
        on = _on(toggle, each, cost, length=length, tau=tau)
        taken = each.tokens / tau if on else each.tokens
        step_s = cycle_s(cost, each.batch, each.context, length) if on else _plain_s(cost, each)
        total_s, steps, plain = total_s + taken * step_s, steps + taken, plain + (0.0 if on else taken)
    return total_s, plain / steps


def cycle_s(cost: StepCost, batch: int, context: int, length: float) -> Seconds:
    """Return the time of drafting `length` tokens for each response, and of their verification."""
    kv_tokens, drafted = batch * context, batch * length
    step_s = cost.draft_s(batch, kv_tokens, drafted=batch, longest=1)
    return length * step_s + cost.verify_s(batch, kv_tokens, drafted=drafted)


def tau_of(accepted: float, length: float) -> float:
    """Return the tokens of a cycle whose drafts are accepted at one rate (E-A)."""
    return (1 - accepted ** (length + 1)) / (1 - accepted)


def _length(slices: Sequence[Slice]) -> float:
    return sum(each.tokens for each in slices)


def _drawn(published: Published, cost: StepCost, decode_s: Seconds) -> list[Slice]:
    ends_s = np.array((0.0, *published.completed_s)) * (decode_s / published.completed_s[-1])
    slice_s = decode_s / SLICES
    found: list[Slice] = []
    context = 0.0
    for number in range(SLICES):
        done = float(np.interp((number + 0.5) * slice_s, ends_s, (0.0, *SHARES)))
        others = max(0.0, (1 - done) * RESPONSES - 1)
        batch = 1 + round(others / REPLICAS)
        tokens = slice_s / cost.plain_s(batch, int(batch * context))
        found.append(Slice(batch=batch, context=int(context), tokens=tokens))
        context += tokens
    return found


def _plain_s(cost: StepCost, each: Slice) -> Seconds:
    return cost.plain_s(each.batch, each.batch * each.context)


def _on(toggle: Toggle, each: Slice, cost: StepCost, *, length: float, tau: float) -> bool:
    forecast = Forecast(
        batch=each.batch,
        plain_s=_plain_s(cost, each),
        speculative_s=cycle_s(cost, each.batch, each.context, length),
        accepted=(tau - 1) * each.batch,
    )
    view = StepView(
        slots=np.arange(each.batch),
        probes=np.zeros(each.batch, np.bool_),
        limits=np.full(each.batch, round(length)),
        kv_tokens=each.batch * each.context,
    )
    return toggle.verdict(view, forecast, forecast.accepted, Acceptance(max_length=round(length))) == "on"
