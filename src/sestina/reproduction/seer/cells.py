"""Seer v3's table 4 and figures 7, 8, 10 and 11, beside what simulations say.

Fitted, for each model: the spread of lengths between groups, to all that is published of how the baseline's rollout
went; and the ratio of the paper's seconds to simulated ones, to the baseline's total, which cancels out of every other
cell but figure 8's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sestina.policies.planner import SchedulerKind
from sestina.reproduction.cell import Cell, Kind, cell_of
from sestina.reproduction.rollouts import Outcome, rolled_out
from sestina.reproduction.seer.published import QWEN_ORACLE, QWEN_TAILS, Motivation, Published
from sestina.reproduction.seer.tasks import System, Task, world_of_task
from sestina.reproduction.spread import SPREADS, spread_of

PAPER = "Seer v3"
ITERATIONS = {"baseline": 3, "seer": 2}
"""How many are simulated; a baseline's differ by a tenth, the others' by a hundredth."""
SIZES = (8, 16)

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """What was simulated of one model."""

    task: Task
    between: float
    baseline: Outcome
    divided: Outcome
    context: Outcome
    drafting: Outcome
    sized: dict[int, tuple[Outcome, Outcome]]
    """The baseline and Seer, by responses to a prompt."""
    oracle: Outcome | None
    """Of the model that the paper has it of."""

    @property
    def scale(self) -> float:
        """Return seconds of the paper for a simulated one."""
        return self.task.published.baseline_s / self.baseline.rollout_s


def cells(task: Task, say: Say) -> list[Cell]:
    """Simulate a model; `say` hears how it goes."""
    return cells_of(reproduced(task, say))


def reproduced(task: Task, say: Say) -> Reproduced:
    """Fit a model's spread, then simulate all systems with it."""
    tried = {between: _run(task, between, say, "baseline", "group") for between in SPREADS}
    between = spread_of(_said(task.published), {between: _went(outcome) for between, outcome in tried.items()})
    say(f"{PAPER}, {task.name}: lengths spread by {between:g} between groups")
    run = partial(_run, task, between, say)
    baseline, drafting = tried[between], run("drafting", "context")
    return Reproduced(
        task=task,
        between=between,
        baseline=baseline,
        divided=run("seer", "divided"),
        context=run("seer", "context"),
        drafting=drafting,
        sized={
            size: (baseline, drafting)
            if size == task.group_size
            else (run("baseline", "group", size), run("drafting", "context", size))
            for size in SIZES
        },
        oracle=run("seer", "oracle") if task.name.startswith("Qwen") else None,
    )


def _said(published: Published) -> dict[str, float]:
    """Return what is known of a baseline's rollout beside its seconds."""
    tail = {"tail share": published.baseline_tail_s / published.baseline_s}
    went = published.motivation
    return tail if went is None else tail | {"preemptions": went.preemptions, "idle": went.idle, "spread": went.spread}


def _went(outcome: Outcome) -> dict[str, float]:
    """Return the same of a simulated one."""
    return {
        "tail share": outcome.tail_share,
        "preemptions": outcome.preemptions,
        "idle": outcome.idle,
        "spread": outcome.spread,
    }


def _run(
    task: Task, between: float, say: Say, system: System, scheduler: SchedulerKind, group_size: int | None = None
) -> Outcome:
    world = world_of_task(task, system, between=between, group_size=group_size)
    iterations = ITERATIONS["baseline" if system == "baseline" else "seer"]
    outcome = rolled_out(world, scheduler, iterations, replicas=task.replicas)
    say(
        f"{PAPER}, {task.name}, {system}, {scheduler}, G {group_size or task.group_size}, spread {between:g}: rollout "
        f"{outcome.rollout_s:,.0f} s, tail {outcome.tail_s:,.0f} s, {outcome.accepted:.2f} tokens a step"
    )
    return outcome


def cells_of(one: Reproduced) -> list[Cell]:
    """Return one model's values, fitted ones first."""
    published, base, scale = one.task.published, one.baseline, one.scale
    cell = partial(_cell, one.task.name)
    found = [
        cell("figure 8", "veRL, rollout", "s", published.baseline_s, base.rollout_s * scale, kind="fitted"),
        cell("figure 8", "veRL, tail", "s", published.baseline_tail_s, base.tail_s * scale, kind="fitted"),
        cell("figure 8", "Seer, rollout", "s", published.seer_s, one.drafting.rollout_s * scale),
        cell("figure 8", "Seer, tail", "s", published.seer_tail_s, one.drafting.tail_s * scale),
        cell("table 4", "divided", "x", published.divided, _gain(base, one.divided)),
        cell("table 4", "+ context", "x", published.context, _gain(base, one.context)),
        cell("table 4", "+ grouped drafts", "x", published.drafting, _gain(base, one.drafting)),
        cell("figure 11", "grouped drafts over none", "x", published.drafts, _gain(one.context, one.drafting)),
        cell("figure 11", "tokens of a step", "tokens", published.accepted, one.drafting.accepted),
    ]
    for size, (baseline, seer) in one.sized.items():
        name = f"{one.task.name} with G = {size}"
        found.append(_cell(name, "figure 7", "Seer", "x", published.seer[size], _gain(baseline, seer)))
    found += _motivation(one, published.motivation) if published.motivation else []
    return found + (_figure_10(one, one.oracle) if one.oracle else [])


def _motivation(one: Reproduced, published: Motivation) -> list[Cell]:
    base = one.baseline
    cell = partial(_cell, one.task.name, "section 2", kind="fitted")
    return [
        cell("veRL, preemptions", "", published.preemptions, base.preemptions),
        cell("veRL, an instance's idle share", "", published.idle, base.idle),
        cell("veRL, spread of instances' ends", "", published.spread, base.spread),
    ]


def _figure_10(one: Reproduced, oracle: Outcome) -> list[Cell]:
    base = one.baseline
    cell = partial(_cell, one.task.name)
    return [
        cell("figure 10", "oracle", "x", QWEN_ORACLE, _gain(base, oracle)),
        cell("figure 10", "tail, divided", "x", QWEN_TAILS["divided"], one.divided.tail_s / base.tail_s),
        cell("figure 10", "tail, context", "x", QWEN_TAILS["context"], one.context.tail_s / base.tail_s),
    ]


def _gain(baseline: Outcome, system: Outcome) -> float:
    return baseline.rollout_s / system.rollout_s


def _cell(
    model: str, table: str, row: str, unit: str, published: float, simulated: float, kind: Kind = "predicted"
) -> Cell:
    return cell_of(PAPER, table, f"{model}, {row}", unit, published, simulated, kind)
