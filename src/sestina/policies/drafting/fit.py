"""Fits the closed form of step times to measured steps, in two stages (EfficientRollout; algorithms-and-numbers E-B).

The arithmetic of a row over nothing is given, from a benchmark of matrix products. Stage 1 fits to plain steps what
they show (log-MSE on T_p): W_T, kappa, c_attn, c_T and the constant part; c_attn is not left to the products' rate, as
attention does not run at it. Stage 2 fits c_V, c_D and their constants: half of the loss is the log-MSE of verification
and drafting, half that of whole cycles, T_V plus drafting.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from sestina.core.units import Seconds
from sestina.policies.drafting.acceptance import FloatArray
from sestina.policies.drafting.calibration import StepPoint, predicted_s
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import JoinPoint, ServingCost, joined_s

STEPS = 300
LEAST_S: Seconds = 1e-12
"""Below any coefficient that matters: they are fitted as logarithms, which keeps them from being negative."""

Cost = TypeVar("Cost", StepCost, ServingCost)
Deviations: TypeAlias = Callable[[FloatArray], FloatArray]

PLAIN = ("weights_s", "kv_token_s", "row_kv_s", "plain_sequence_s", "step_s")
DRAFTING = ("verify_sequence_s", "verify_token_s", "verify_step_s", "draft_token_s", "draft_step_s")


def fit(points: Sequence[StepPoint], *, row_s: Seconds) -> StepCost:
    """Return the cost fitted to the points that are not held out; there must be some of every kind."""
    fitted = [point for point in points if not point.held_out]
    plain, verify, draft = ([p for p in fitted if p.kind == kind] for kind in ("plain", "verify", "draft"))
    return _second(_first(plain, row_s), verify, draft)


def fit_serving(points: Sequence[JoinPoint], cost: StepCost) -> ServingCost:
    """Return what joining adds to steps of `cost`, fitted to the points that are not held out."""
    fitted = [point for point in points if not point.held_out]
    start = ServingCost(
        chunk_s=0.1 * cost.step_s,
        text_token_s=0.01 * cost.row_s,
        join_s=0.1 * cost.step_s,
        row_s=cost.row_s,
        row_kv_s=cost.row_kv_s,
    )
    names = [field.name for field in dataclasses.fields(ServingCost)]

    def deviations(serving: ServingCost) -> list[float]:
        return [float(np.log(joined_s(cost, serving, point) / point.seconds)) for point in fitted]

    return _fitted(start, names, [getattr(start, name) for name in names], deviations)


def _first(plain: Sequence[StepPoint], row_s: Seconds) -> StepCost:
    least_s = min(point.seconds for point in plain)
    most_kv = max(point.kv_tokens for point in plain)
    start = StepCost(
        weights_s=0.0,
        kv_token_s=0.0,
        row_s=row_s,
        row_kv_s=0.0,
        plain_sequence_s=0.0,
        verify_sequence_s=0.0,
        draft_token_s=0.0,
    )

    def deviations(cost: StepCost) -> list[float]:
        return [_deviation(cost, point) for point in plain]

    tries = [
        _fitted(start, PLAIN, (share * least_s, kv_s, kv_s, 0.01 * least_s, (1 - share) * least_s), deviations)
        for share in (0.1, 0.5, 0.9)
        for kv_s in (0.1 * least_s / most_kv, least_s / most_kv)
    ]
    return min(tries, key=lambda cost: float(np.square(deviations(cost)).sum()))


def _second(cost: StepCost, verify: Sequence[StepPoint], draft: Sequence[StepPoint]) -> StepCost:
    at = {(p.batch, p.sequence_tokens, p.length): p for p in draft}
    cycles = [(p, at[key]) for p in verify if (key := (p.batch, p.sequence_tokens, p.length)) in at]

    def deviations(cost: StepCost) -> list[float]:
        parts = [_deviation(cost, point) for point in (*verify, *draft)]
        wholes = [
            float(np.log((predicted_s(cost, v) + predicted_s(cost, d)) / (v.seconds + d.seconds))) for v, d in cycles
        ]
        return [*_weighted(parts), *_weighted(wholes)]

    draft_s = min(point.seconds for point in draft)
    token_s = min(point.seconds / (point.batch * point.length) for point in draft)
    sequence_s = max(cost.plain_sequence_s, token_s)
    start = (sequence_s, sequence_s, 0.1 * cost.step_s + token_s, token_s, draft_s)
    return _fitted(cost, DRAFTING, start, deviations)


def _weighted(deviations: Sequence[float]) -> list[float]:
    """Return deviations whose squares sum to half of the mean of theirs."""
    return [deviation * float(np.sqrt(0.5 / len(deviations))) for deviation in deviations]


def _deviation(cost: StepCost, point: StepPoint) -> float:
    return float(np.log(predicted_s(cost, point) / point.seconds))


def _fitted(
    cost: Cost, names: Sequence[str], start: Sequence[Seconds], deviations: Callable[[Cost], list[float]]
) -> Cost:
    """Return `cost` with the coefficients `names` such that the squares of deviations are least."""

    def at(logs: FloatArray) -> Cost:
        return dataclasses.replace(cost, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    best = least_squares(lambda logs: np.array(deviations(at(logs))), np.log(np.maximum(start, LEAST_S)))
    return at(best)


def least_squares(deviations: Deviations, start: FloatArray) -> FloatArray:
    """Return where the sum of squared deviations is least, by Levenberg and Marquardt's steps from `start`."""
    at, damping = start, 1e-2
    now = deviations(at)
    for _ in range(STEPS):
        slopes = _slopes(deviations, at, now)
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slopes.T @ now)
        trial = np.clip(at + np.clip(step, -2.0, 2.0), np.log(LEAST_S), None)
        then = deviations(trial)
        better = float(then @ then) < float(now @ now)
        at, now = (trial, then) if better else (at, now)
        damping = damping / 3 if better else damping * 4
        if damping > 1e12:  # noqa: PLR2004 - no step leads down any more
            break
    return at


def _slopes(deviations: Deviations, at: FloatArray, now: FloatArray) -> FloatArray:
    width = 1e-5
    return np.stack([(deviations(at + width * unit) - now) / width for unit in np.eye(len(at))], axis=1)
