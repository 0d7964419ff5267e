import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.drafting.acceptance import Acceptance

RESULTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20)


def ordered(results):
    """[(planned, drafted, accepted)] as arrays with accepted <= drafted <= planned."""
    return np.sort(np.array(results), axis=1)[:, ::-1].T


@given(steps=st.lists(RESULTS, min_size=1, max_size=8))
def test_survival_is_a_chain_of_the_counted_rates(steps):
    keep, weight = 0.9, 4.0
    acceptance = Acceptance(max_length=6, keep=keep)
    tried, accepted_at = [0.0] * 6, [0.0] * 6
    for results in steps:
        planned, drafted, accepted = ordered(results)
        acceptance.learn(planned, drafted, accepted)
        for j in range(6):
            reached = [(p, a) for p, a in zip(planned, accepted, strict=True) if p > j and a >= j]
            tried[j] = keep * tried[j] + len(reached)
            accepted_at[j] = keep * accepted_at[j] + sum(a > j for _, a in reached)
    rate, expected = 0.0, [1.0]
    for j in range(6):
        rate = (accepted_at[j] + weight * rate) / (tried[j] + weight)
        expected.append(expected[-1] * rate)
    assert acceptance.survival == pytest.approx(expected)
    assert acceptance.expected(np.array([0, 2, 6])) == pytest.approx(sum(expected[1:3]) + sum(expected[1:]))


def test_what_was_never_tried_promises_nothing():
    acceptance = Acceptance(max_length=8)
    assert acceptance.expected(np.array([8, 8])) == 0
    assert (acceptance.rate, acceptance.mean_conditional, acceptance.offered) == (None, 0.0, 1.0)


def test_a_steady_rate_is_found_and_extends_beyond_what_was_tried():
    rng = np.random.default_rng(0)
    acceptance = Acceptance(max_length=8)
    for _ in range(100):
        accepted = np.minimum(rng.geometric(0.4, 64) - 1, 4)
        acceptance.learn(np.full(64, 4), np.full(64, 4), accepted)
    assert acceptance.survival == pytest.approx(0.6 ** np.arange(9), abs=0.02)
    assert acceptance.mean_conditional == pytest.approx(0.6, abs=0.02)
    assert acceptance.rate == pytest.approx((0.6 + 0.36 + 0.216 + 0.1296) / 4, abs=0.02)


def test_drafts_that_were_not_offered_count_as_not_accepted():
    acceptance = Acceptance(max_length=4)
    for _ in range(200):
        acceptance.learn(np.full(4, 4), np.array([4, 4, 0, 0]), np.array([4, 4, 0, 0]))
    assert acceptance.offered == 0.5
    assert acceptance.rate == 1.0
    assert acceptance.survival[1:] == pytest.approx(0.5, abs=0.03)


def test_it_forgets():
    acceptance = Acceptance(max_length=2)
    for accepted in [2] * 200 + [0] * 200:
        acceptance.learn(np.array([2]), np.array([2]), np.array([accepted]))
    assert acceptance.survival[1] < 0.02
