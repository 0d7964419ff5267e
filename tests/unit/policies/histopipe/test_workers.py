import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.histopipe.workers import WorkerBounds, least_workers, plan_workers


def tau(length, workers):
    return 5.0 + length / workers


@st.composite
def problems(draw):
    lengths = sorted(draw(st.lists(st.integers(1, 5000), min_size=1, max_size=8)))
    fewest = draw(st.integers(1, 3))
    most = fewest + draw(st.integers(0, 12))
    total = len(lengths) * fewest + draw(st.integers(0, 60))
    return lengths, WorkerBounds(total=total, fewest=fewest, most=most), draw(st.floats(0, 3000))


@given(problem=problems())
def test_everything_is_given_away_within_the_bounds(problem):
    lengths, bounds, train_s = problem
    counts = plan_workers(lengths, tau, bounds, train_s=train_s)
    assert all(bounds.fewest <= count <= bounds.most for count in counts)
    assert sum(counts) == min(bounds.total, bounds.most * len(lengths))


@given(problem=problems())
def test_groups_end_in_time_at_the_least_spacing_that_there_are_workers_for(problem):
    """Against a scan of all spacings; where bisection's premise, one widest spacing that works, holds."""
    lengths, bounds, train_s = problem
    first_s = max(tau(lengths[0], bounds.most), train_s)
    widest_s = max(0.0, (tau(lengths[-1], bounds.fewest) - first_s) / max(1, len(lengths) - 1))

    def enough(spacing_s):
        return least_workers(lengths, tau, bounds, first_s=first_s, spacing_s=spacing_s)

    counts = plan_workers(lengths, tau, bounds, train_s=train_s, precision_s=0.5)
    if enough(widest_s) is None:
        return
    steps = [widest_s * i / 400 for i in range(401)]
    least_s = next(spacing_s for spacing_s in steps if enough(spacing_s) is not None)
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        assert tau(length, count) <= first_s + i * (least_s + 0.5) + 1e-6


def test_longer_groups_get_more():
    bounds = WorkerBounds(total=16, fewest=1, most=16)
    counts = plan_workers([100, 200, 400, 800], tau, bounds, train_s=100.0)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_a_slow_trainer_leaves_one_worker_to_each_and_the_rest_to_the_longest():
    bounds = WorkerBounds(total=10, fewest=1, most=8)
    assert plan_workers([100, 200, 300], tau, bounds, train_s=10_000.0) == [1, 1, 8]


def test_a_single_group_gets_what_there_is():
    assert plan_workers([500], tau, WorkerBounds(total=5, fewest=1, most=8), train_s=0.0) == [5]


def test_where_no_spacing_suffices_lengths_decide():
    """The first group wants all six that it may have, to end as soon as it can; five are there for all four groups."""
    bounds = WorkerBounds(total=12, fewest=1, most=6)
    lengths = [10, 1000, 1000, 1000]
    assert least_workers(lengths, tau, bounds, first_s=tau(10, 6), spacing_s=(1005 - tau(10, 6)) / 3)
    tight = WorkerBounds(total=5, fewest=1, most=6)
    assert plan_workers(lengths, tau, tight, train_s=0.0) == [1, 1, 1, 2]


@pytest.mark.parametrize("total", [0, 3])
def test_too_few_workers_are_refused(total):
    with pytest.raises(AssertionError, match="at least 4 needed"):
        plan_workers([1, 2, 3, 4], tau, WorkerBounds(total=total, fewest=1, most=2), train_s=0.0)


def test_lengths_must_rise():
    with pytest.raises(AssertionError, match="must rise"):
        plan_workers([2, 1], tau, WorkerBounds(total=4, fewest=1, most=2), train_s=0.0)
