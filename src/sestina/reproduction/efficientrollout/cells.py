"""EfficientRollout's table 2, its fixed draft lengths and its latencies, beside what the closed form says.

Taken from the paper: constants of a step, when responses end, tokens of a cycle, draft lengths and the time of
preparing a drafter. For drafts of one length no tokens of a cycle are published; they follow from the acceptance.
Fitted, for each model: for how long of the plain rollout nothing decodes.
"""

from collections.abc import Callable
from functools import partial

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.reproduction.cell import Cell, cell_of
from sestina.reproduction.efficientrollout.published import (
    FIXED_GAINS,
    GRID_CONTEXT,
    GRID_LENGTH,
    GRID_SPEEDUPS,
    GRID_TAU,
    MODELS,
    QWEN_7B,
    Method,
    Published,
)
from sestina.reproduction.efficientrollout.timeline import Slice, cost_of, cycle_s, rollout_s, slices_of, tau_of

PAPER = "EfficientRollout v1"

_cell = partial(cell_of, PAPER)


def cells(say: Callable[[str], None]) -> list[Cell]:
    """Predict the three models; `say` hears how it goes."""
    return [cell for published in MODELS for cell in _model(published, say)] + _latencies()


def _model(published: Published, say: Callable[[str], None]) -> list[Cell]:
    cost = cost_of(published.constants)
    slices, rest_s = slices_of(published, cost)
    plain_s = rest_s + sum(each.tokens * cost.plain_s(each.batch, each.batch * each.context) for each in slices)
    found = [_cell("table 2", f"{published.name}, plain, rollout", "s", published.rollout_s, plain_s, kind="fitted")]
    say(f"{PAPER}, {published.name}: nothing decodes for {rest_s:.1f} s of {published.rollout_s:g}")
    for name, method, toggled in (("always on", published.always, False), ("toggled", published.toggled, True)):
        say_share = partial(_say_share, say, f"{PAPER}, {published.name}, {name}")
        found += _rows(f"{published.name}, {name}", published, method, (slices, cost, rest_s, toggled), say_share)
    return found + (_fixed(slices, cost, rest_s) if published is QWEN_7B else [])


def _rows(
    name: str,
    published: Published,
    method: Method,
    given: tuple[list[Slice], StepCost, float, bool],
    say_share: Callable[[float], None],
) -> list[Cell]:
    slices, cost, rest_s, toggled = given
    taken_s, plain = rollout_s(slices, cost, length=method.length, tau=method.tau, toggled=toggled)
    say_share(plain)
    other_s = published.step_s - published.rollout_s
    return [
        _cell("table 2", f"{name}, rollout", "s", method.rollout_s, taken_s + rest_s),
        _cell("table 2", f"{name}, step", "s", method.step_s, taken_s + rest_s + other_s + method.prep_s),
    ]


def _fixed(slices: list[Slice], cost: StepCost, rest_s: Seconds) -> list[Cell]:
    found: list[Cell] = []
    for length, gain in FIXED_GAINS.items():
        tau = tau_of(QWEN_7B.toggled.accepted, length)
        taken_s, _ = rollout_s(slices, cost, length=length, tau=tau, toggled=True)
        name = f"{QWEN_7B.name}, toggled, drafts of {length}, rollout"
        found.append(_cell("draft lengths", name, "s", QWEN_7B.rollout_s * (1 - gain), taken_s + rest_s))
    return found


def _latencies() -> list[Cell]:
    cost = cost_of(QWEN_7B.constants)
    found: list[Cell] = []
    for batch, speedup in GRID_SPEEDUPS.items():
        plain_s = cost.plain_s(batch, batch * GRID_CONTEXT)
        predicted = GRID_TAU * plain_s / cycle_s(cost, batch, GRID_CONTEXT, GRID_LENGTH)
        found.append(_cell("latencies", f"{QWEN_7B.name}, speedup at a batch of {batch}", "x", speedup, predicted))
    return found


def _say_share(say: Callable[[str], None], name: str, plain: float) -> None:
    say(f"{name}: {plain:.0%} of the steps are plain")
