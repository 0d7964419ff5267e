"""A cost is found again from the steps that it takes, whatever the share of each part."""

import dataclasses
import itertools

import numpy as np
import pytest

from sestina.policies.drafting.calibration import StepPoint, predicted_s, residuals_of
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.fit import fit, fit_serving, least_squares
from sestina.policies.drafting.serving import JoinPoint, ServingCost, joined_s

LARGE = StepCost(
    weights_s=16e-3,
    kv_token_s=1e-7,
    row_s=1.5e-3,
    row_kv_s=3e-7,
    plain_sequence_s=2e-5,
    verify_sequence_s=4e-5,
    draft_token_s=2e-6,
    step_s=5e-4,
    verify_step_s=2e-4,
    verify_token_s=1e-5,
    draft_step_s=1e-5,
)
SMALL = dataclasses.replace(LARGE, weights_s=5e-5, row_s=9e-6, kv_token_s=4e-8, row_kv_s=3e-8)
SERVING = ServingCost(chunk_s=4e-5, text_token_s=3e-7, join_s=1e-4, row_s=1.1e-5, row_kv_s=3e-8)
GRID = list(itertools.product((1, 2, 4, 8, 16, 32, 64, 128), (64, 256, 1024), (0, 3, 7, 11, 15)))


def points_of(cost, *, noise=0.0, spoilt=1.0):
    """Steps that take what `cost` says; every fourth is held out, and takes `spoilt` times that."""
    random = np.random.default_rng(0)
    points = []
    for batch, tokens, length in GRID:
        for kind in ("verify", "draft") if length else ("plain",):
            held_out = len(points) % 4 == 3
            size = {"kind": kind, "batch": batch, "sequence_tokens": tokens, "length": length, "held_out": held_out}
            seconds = predicted_s(cost, StepPoint(**size, seconds=1.0)) * float(np.exp(noise * random.normal()))
            points.append(StepPoint(**size, seconds=seconds * (spoilt if held_out else 1.0)))
    return points


@pytest.mark.parametrize("cost", [LARGE, SMALL], ids=["large", "small"])
def test_what_was_not_fitted_is_foretold(cost):
    points = points_of(cost, noise=0.01)
    fitted = fit(points, row_s=cost.row_s)
    residuals = residuals_of(fitted, points, SERVING, [])
    assert len(residuals) == 6
    assert all(r.median < 0.03 and r.largest < 0.2 for r in residuals)
    assert all((getattr(fitted, field.name) or 0.0) >= 0 for field in dataclasses.fields(StepCost))


def test_held_out_points_have_no_say():
    honest, spoilt = points_of(LARGE), points_of(LARGE, spoilt=3.0)
    fitted = fit(spoilt, row_s=LARGE.row_s)
    assert fitted == fit(honest, row_s=LARGE.row_s)
    off = {(r.kind, r.held_out): r.median for r in residuals_of(fitted, spoilt, SERVING, [])}
    assert all((value > 0.5) == held_out for (_, held_out), value in off.items())


def test_what_chunks_add_is_found_again():
    joins = []
    for number, (batch, chunks, text, cached) in enumerate(
        itertools.product((1, 8, 32), (1, 4), (24, 56, 120, 360), (0, 16))
    ):
        size = {"batch": batch, "sequence_tokens": 64, "chunks": chunks, "text_tokens": text, "cached_tokens": cached}
        taken_s = joined_s(SMALL, SERVING, JoinPoint(**size, seconds=1.0, held_out=False))
        spoilt = number % 4 == 3
        joins.append(JoinPoint(**size, seconds=taken_s * (3.0 if spoilt else 1.0), held_out=spoilt))
    fitted = fit_serving(joins, SMALL)
    for field in dataclasses.fields(ServingCost):
        assert getattr(fitted, field.name) == pytest.approx(getattr(SERVING, field.name), rel=0.02)
    off = {r.held_out: r.median for r in residuals_of(SMALL, [], fitted, joins)}
    assert off[False] < 1e-3
    assert off[True] > 0.5


def test_a_minimum_away_from_the_start_is_found():
    def deviations(logs):
        return np.array([logs[0] - 3.0, 2.0 * (logs[1] + 1.0), 0.1 * (logs[0] + logs[1] - 2.0)])

    assert least_squares(deviations, np.zeros(2)) == pytest.approx([3.0, -1.0], abs=1e-6)
