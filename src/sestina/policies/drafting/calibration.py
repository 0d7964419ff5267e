"""A calibration: the step cost fitted to steps measured on one engine, with those steps and how well it foretells them.

Symbols: B sequences in a step, S tokens of context of each, g draft tokens of each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import JoinPoint, ServingCost, joined_s

VERSION = 4
"""Of the record; another one is not read."""

StepKind: TypeAlias = Literal["plain", "verify", "draft"]
PointKind: TypeAlias = StepKind | Literal["join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One kind of step, measured."""

    kind: StepKind
    """A plain step; one that verifies g tokens a sequence, drafts given; the drafting of g tokens for each sequence."""
    batch: int
    sequence_tokens: int
    length: int
    """g; 0 in a plain step."""
    seconds: Seconds
    """The median of some repetitions."""
    held_out: bool
    """Not fitted to."""

    @property
    def kv_tokens(self) -> int:
        """Return B * S."""
        return self.batch * self.sequence_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """How far predictions are from measurements of one kind."""

    kind: PointKind
    held_out: bool
    num_points: int
    median: float
    """Of |predicted / measured - 1|."""
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedEngine:
    """What was measured: its times hold for nothing else."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    tied: bool
    device: str
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedOn:
    """Where and when."""

    machine: str
    accelerator: str | None
    logical_cores: int
    memory_gib: float
    commit: str | None
    date: str
    """UTC, to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One file."""

    version: int
    engine: CalibratedEngine
    taken: CalibratedOn
    gemm_flops: float
    """F_eff: operations per second of the model's matrix products."""
    cost: StepCost
    serving: ServingCost
    residuals: tuple[Residual, ...]
    left_out: tuple[str, ...]
    """Points of the grid that the engine has no room for, with the reason."""
    points: tuple[StepPoint, ...]
    joins: tuple[JoinPoint, ...]


def predicted_s(cost: StepCost, point: StepPoint) -> Seconds:
    """Return what a cost foretells for a point."""
    batch, drafted = point.batch, point.batch * point.length
    match point.kind:
        case "plain":
            return cost.plain_s(batch, point.kv_tokens)
        case "verify":
            return cost.verify_s(batch, point.kv_tokens, drafted=drafted)
        case "draft":
            return cost.draft_s(batch, point.kv_tokens, drafted=drafted, longest=point.length)


def residuals_of(
    cost: StepCost, points: Iterable[StepPoint], serving: ServingCost, joins: Iterable[JoinPoint]
) -> tuple[Residual, ...]:
    """Return residuals by kind, fitted points and held-out ones apart; none for a kind without points."""
    off: dict[tuple[PointKind, bool], list[float]] = {}
    for point in points:
        off.setdefault((point.kind, point.held_out), []).append(abs(predicted_s(cost, point) / point.seconds - 1))
    for join in joins:
        off.setdefault(("join", join.held_out), []).append(abs(joined_s(cost, serving, join) / join.seconds - 1))
    return tuple(
        Residual(kind=kind, held_out=held, num_points=len(all), median=float(np.median(all)), largest=max(all))
        for (kind, held), all in sorted(off.items())
    )
