"""RhymeRL's ablation, its averages over veRL and AReaL, and its ranks, beside what simulations say.

Fitted: two values to veRL's idle shares, and for each model the trainer's rate (worlds.py). The averages are of three
models and of what drafts find in mathematics and in code, both on the lengths of mathematics, since code's are not
published; the paper's are of algorithms besides.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Literal, TypeAlias

from sestina.reproduction.cell import Cell
from sestina.reproduction.rhymerl import published
from sestina.reproduction.rhymerl.ranks import ranks_of
from sestina.reproduction.rhymerl.systems import Systems
from sestina.reproduction.rhymerl.worlds import MODELS, PART, Fitted, fitted
from sestina.reproduction.rollouts import Outcome

PAPER = "RhymeRL v1"
RANKED_BY = 16
"""Ranking groups of table 2 from whose changes the spread within groups was taken."""

Say: TypeAlias = Callable[[str], object]


def cells(say: Say, part: int = PART) -> list[Cell]:
    """Simulate every value; about two minutes on one core. `part`: as of a setting."""
    fit, baseline = fitted(part)
    say(
        f"RhymeRL: lengths of prompts spread by {fit.between:g}, {fit.load} prompts on an instance; "
        f"veRL's are idle for {baseline.idle:.3f} of a rollout, the earliest for {baseline.spread:.3f}"
    )
    return [*_idle(baseline), *_figure_14(fit, part, say), *_figure_13(fit, part, say), *_table_2(fit)]


def _idle(baseline: Outcome) -> list[Cell]:
    cell = partial(_cell, unit="", kind="fitted")
    return [
        cell("section 1", "14B, veRL, an instance's idle share", published=published.IDLE, simulated=baseline.idle),
        cell(
            "figure 3c",
            "14B, veRL, idle share of the earliest instance",
            published=published.EARLIEST_IDLE,
            simulated=baseline.spread,
        ),
    ]


def _figure_14(fit: Fitted, part: int, say: Say) -> list[Cell]:
    systems = Systems(fit=fit, part=part)
    rates = [systems.verl(), systems.histopipe(two_tier=False), systems.histopipe(two_tier=True), systems.rhymerl()]
    gains = [after / before for before, after in pairwise(rates)]
    say(f"RhymeRL, figure 14: {', '.join(f'{gain:.3g}' for gain in gains)}")
    names = ("HistoPipe over veRL", "two-tier over HistoPipe", "HistoSpec over both")
    factors = (published.HISTOPIPE, published.TWO_TIER, published.HISTOSPEC)
    return [
        _cell("figure 14", f"14B, {name}", published=factor, simulated=gain)
        for name, factor, gain in zip(names, factors, gains, strict=True)
    ]


def _figure_13(fit: Fitted, part: int, say: Say) -> list[Cell]:
    found: list[Cell] = []
    for longest, over_verl in published.OVER_VERL.items():
        each = [Systems(fit=fit, model=model, longest=longest, part=part) for model in MODELS]
        rates = [fmean(systems.rhymerl(task) for task in published.SIMILARITY) for systems in each]
        factors = {"veRL": (over_verl, [systems.verl() for systems in each])}
        for eta, over_areal in published.OVER_AREAL[longest].items():
            factors[f"AReaL at eta {eta}"] = over_areal, [systems.areal(eta) for systems in each]
        for name, (factor, others) in factors.items():
            gains = [rate / other for rate, other in zip(rates, others, strict=True)]
            say(f"RhymeRL, figure 13, {longest} tokens, over {name}: {', '.join(f'{gain:.3g}' for gain in gains)}")
            row = f"responses of {longest:,}, mean over {name}"
            found.append(_cell("figure 13", row, published=factor, simulated=fmean(gains)))
    return found


def _table_2(fit: Fitted) -> list[Cell]:
    found: list[Cell] = []
    for groups, (accurate, migrated) in published.RANKS.items():
        ranks = ranks_of(fit.between, groups)
        kind = "fitted" if groups == RANKED_BY else "predicted"
        cell = partial(_cell, "table 2", unit="")
        row = f"Math-1 in {groups} groups"
        found.append(cell(f"{row}, of no higher rank", published=accurate, simulated=ranks.accurate, kind=kind))
        found.append(cell(f"{row}, migrated", published=migrated, simulated=ranks.migrated))
    return found


def _cell(
    table: str,
    row: str,
    *,
    published: float,
    simulated: float,
    unit: str = "x",
    kind: Literal["predicted", "fitted"] = "predicted",
) -> Cell:
    return Cell(paper=PAPER, table=table, row=row, unit=unit, published=published, simulated=simulated, kind=kind)
