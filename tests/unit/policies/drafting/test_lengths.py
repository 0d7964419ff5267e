from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.aimd import AimdLengths
from sestina.policies.drafting.ladder import LadderLengths
from sestina.policies.drafting.lengths import FixedLength, Totals
from sestina.policies.drafting.mba import MbaLengths, allot_literal, allot_per_cost, best_length
from sestina.policies.drafting.measured import MeasuredCost
from sestina.policies.drafting.step import StepOutcome, StepPlan
from sestina.policies.drafting.thresholds import Threshold, ThresholdLengths, thresholds_of
from tests.unit.policies.drafting.worlds import INDEX, view_of

COST = MeasuredCost(INDEX)


def chosen(policy, view, acceptance=None):
    return policy.choose(view, acceptance or Acceptance(max_length=32), COST)


def seen(alpha, *, length=8, steps=300):
    """An Acceptance that has seen drafts of `length` accepted at rate alpha."""
    rng = np.random.default_rng(1)
    acceptance = Acceptance(max_length=32)
    for _ in range(steps):
        accepted = np.minimum(rng.geometric(1 - alpha, 64) - 1, length)
        acceptance.learn(np.full(64, length), np.full(64, length), accepted)
    return acceptance


def test_fixed():
    assert chosen(FixedLength(5), view_of(3)).lengths.tolist() == [5, 5, 5]
    with pytest.raises(AssertionError):
        FixedLength(0)


TABLE = (Threshold(max_batch=4, draft_tokens=64), Threshold(max_batch=16, draft_tokens=64),
         Threshold(max_batch=64, draft_tokens=96))  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "length", "paths"), [(1, 8, 4), (2, 8, 4), (4, 8, 2), (8, 8, 1), (16, 4, 1), (64, 1, 1), (65, 0, 1)]
)
def test_thresholds_share_a_step_out_and_then_widen(batch, length, paths):
    lengths = chosen(ThresholdLengths(TABLE, max_length=8, max_paths=4), view_of(batch))
    assert (lengths.lengths.tolist(), lengths.paths) == ([length] * batch, paths)


@given(slack=st.floats(0.01, 2), batches=st.sets(st.integers(1, 128), min_size=1))
def test_thresholds_of_a_cost_are_the_most_that_fit(slack, batches):
    table = thresholds_of(INDEX, batches=tuple(sorted(batches)), sequence_tokens=500, slack=slack)
    for row in table:
        limit_s = (1 + slack) * INDEX.plain_s(row.max_batch, 500 * row.max_batch)

        def fits(tokens, row=row, limit_s=limit_s):
            kv_tokens = 500 * row.max_batch
            return INDEX.speculative_s(row.max_batch, kv_tokens, drafted=tokens, longest=0) <= limit_s

        assert row.draft_tokens == 0 or fits(row.draft_tokens)
        assert row.draft_tokens == 64 * row.max_batch or not fits(row.draft_tokens + 1)


def test_a_table_must_rise():
    with pytest.raises(AssertionError, match="must rise"):
        ThresholdLengths(TABLE[::-1], max_length=8)


GEOMETRIC = [0.6**j for j in range(9)]
SURVIVAL = st.lists(st.floats(0, 1), min_size=8, max_size=8).map(lambda xs: np.cumprod([1.0, *xs]).tolist())
SPEND = {"budget": st.integers(0, 1200), "survival": SURVIVAL, "weight": st.floats(1, 4)}
CLASSES = {"num_probes": st.integers(0, 64), "num_others": st.integers(0, 64)}


def test_the_literal_rule_as_traced_by_hand():
    """alpha 0.6, g* 4, lambda 2, (8, 56): (1, 4), 24 tokens unspent (algorithms-and-numbers 1.4)."""
    assert allot_literal(8, 56, GEOMETRIC, budget=4 * 64, max_length=8, weight=2.0) == (1, 4)


def per_cost(num_probes, num_others, survival, **limits):
    probing = np.arange(num_probes + num_others) < num_probes
    lengths = allot_per_cost(probing, survival, max_length=8, **limits)
    return lengths[:num_probes], lengths[num_probes:]


def test_per_cost_gives_probes_more():
    """ln 2 / ln (1 / 0.6) = 1.4 tokens, and spends the budget to the last."""
    for budget in (64, 2 * 64, 4 * 64):
        probes, others = per_cost(8, 56, GEOMETRIC, budget=budget, weight=2.0)
        assert 1 <= probes.mean() - others.mean() < 2
        assert probes.sum() + others.sum() == budget


@given(**CLASSES, **SPEND)
def test_the_literal_rule_keeps_the_budget(num_probes, num_others, survival, budget, weight):
    probes, others = allot_literal(num_probes, num_others, survival, budget=budget, max_length=8, weight=weight)
    assert 0 <= probes <= 8
    assert 0 <= others <= 8
    assert probes * num_probes + others * num_others <= budget


@given(**CLASSES, **SPEND)
def test_per_cost_keeps_the_budget_and_no_pair_of_lengths_is_worth_more(
    num_probes, num_others, survival, budget, weight
):
    gains = np.cumsum(survival) - 1
    probes, others = per_cost(num_probes, num_others, survival, budget=budget, weight=weight)
    assert probes.sum() + others.sum() <= budget
    pairs = [(p, o) for p in range(9) for o in range(9) if p * num_probes + o * num_others <= budget]
    most = max(weight * num_probes * gains[p] + num_others * gains[o] for p, o in pairs)
    assert weight * gains[probes].sum() + gains[others].sum() >= most - 1e-9


@given(num_probes=st.integers(1, 64), num_others=st.integers(0, 64))
def test_a_budget_that_cannot_serve_the_probes_is_off(num_probes, num_others):
    arguments = {"survival": GEOMETRIC, "budget": num_probes - 1, "max_length": 8, "weight": 2.0}
    assert allot_literal(num_probes, num_others, **arguments) == (0, 0)


@given(alpha=st.floats(0, 0.99), batch=st.integers(1, 128), offered=st.floats(0, 1))
def test_the_best_length_is_the_argmin_and_plain_decoding_is_a_candidate(alpha, batch, offered):
    view, survival = view_of(batch), alpha ** np.arange(9)
    best = best_length(view, survival, COST, offered=offered, max_length=8)
    times = [INDEX.plain_s(batch, view.kv_tokens)]
    for g in range(1, 9):
        step_s = INDEX.speculative_s(batch, view.kv_tokens, drafted=g * batch * offered, longest=g)
        times.append(step_s * (1 - alpha) / (1 - alpha ** (g + 1)))
    assert times[best] == pytest.approx(min(times), rel=1e-9)


def test_the_best_length_falls_as_the_batch_grows():
    lengths = [best_length(view_of(b), 0.8 ** np.arange(9), COST, offered=1, max_length=8) for b in (1, 16, 48, 128)]
    assert lengths == sorted(lengths, reverse=True)
    assert (lengths[0], lengths[-1]) == (8, 0)


@pytest.mark.parametrize("mode", ["literal", "per_cost"])
def test_mba_tells_probes_from_others(mode):
    lengths = chosen(MbaLengths(mode=mode), view_of(24, probes=4), seen(0.7)).lengths
    assert (lengths[:4].mean() > lengths[4:].mean()) == (mode == "per_cost")
    assert not chosen(MbaLengths(mode=mode), view_of(24, probes=4), Acceptance(max_length=32)).lengths.any()


def outcome_of(view, drafted, accepted):
    plan = StepPlan(
        lengths=drafted, paths=1, reason="on", plain_s=1.0, expected_s=1.0, expected_tokens=float(view.batch)
    )
    return StepOutcome(
        view=view, plan=plan, drafted=drafted, accepted=accepted, draft_tokens=int(drafted.sum()), seconds=1.0
    )


@given(steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["all", "some", "none drafted"])), max_size=60))
def test_a_window_rises_by_two_and_falls_to_two(steps):
    policy, windows = AimdLengths(num_slots=3), [2, 2, 2]
    view = view_of(3)
    for slot, fate in steps:
        assert chosen(policy, view).lengths.tolist() == windows
        drafted, accepted = np.array([0, 0, 0]), np.array([0, 0, 0])
        if fate != "none drafted":
            drafted[slot] = windows[slot]
            accepted[slot] = windows[slot] - (fate == "some")
            windows[slot] = min(windows[slot] + 2, 32) if fate == "all" else 2
        policy.learn(outcome_of(view, drafted, accepted))
    policy.start(np.array([1]))
    assert chosen(policy, view).lengths.tolist() == [windows[0], 2, windows[2]]


def rollouts(ladder, *rates):
    """End rollouts with these shares of 1000 drafts accepted; returns the rungs in between."""
    rungs = []
    for rate in rates:
        ladder.end_rollout(Totals(drafted=1000, accepted=int(1000 * rate)))
        rungs.append(ladder.length)
    return rungs


def test_the_ladder_climbs_after_two_good_rollouts_and_counts_afresh_on_each_rung():
    ladder = LadderLengths()
    assert rollouts(ladder, 0.95, 0.95, 0.95, 0.95, 0.99, 0.99, 0.99, 0.99) == [5, 7, 7, 9, 9, 11, 11, 11]
    assert rollouts(ladder, 0.9, 0.8, 0.84, 0.84, 0.8, 0.8, 0.8, 0.8, 0.8) == [11, 11, 9, 9, 7, 7, 5, 5, 5]


def test_a_rollout_without_drafts_says_nothing():
    ladder = LadderLengths()
    ladder.end_rollout(Totals(drafted=10, accepted=10))
    ladder.end_rollout(Totals(drafted=0, accepted=0))
    assert ladder.length == 5
    ladder.end_rollout(Totals(drafted=10, accepted=10))
    assert ladder.length == 7


def test_the_ladder_promises_what_the_last_rollout_brought():
    ladder, lengths = LadderLengths(), np.array([5, 5])
    acceptance = Acceptance(max_length=32)
    assert ladder.promised(lengths, acceptance) == pytest.approx(2 * 4.0), "tau_0 = g: 4 drafts and the bonus"
    ladder.end_rollout(Totals(drafted=100, accepted=60))
    assert ladder.promised(lengths, acceptance) == pytest.approx(2 * 3.0)
    rollouts(ladder, 0.97, 0.97)
    assert ladder.promised(np.array([7]), acceptance) == pytest.approx(6.0), "seeded with the new rung"


@given(rates=st.lists(st.floats(0, 1), max_size=40))
def test_the_ladder_moves_one_rung_at_a_time_and_only_with_two_rollouts_behind_it(rates):
    assume(rates)
    rungs = [5, *rollouts(LadderLengths(), *rates)]
    moves = [i for i, (a, b) in enumerate(pairwise(rungs)) if a != b]
    assert all(abs((5, 7, 9, 11).index(a) - (5, 7, 9, 11).index(b)) <= 1 for a, b in pairwise(rungs))
    assert all(b - a >= 2 for a, b in pairwise([-1, *moves]))
