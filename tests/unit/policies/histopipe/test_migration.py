import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.ids import RequestId
from sestina.policies.histopipe.layout import worker_ranges
from sestina.policies.histopipe.migration import growth_bound, intra_step_target, migrating, route


@pytest.mark.parametrize(
    ("growths", "beta"), [([], 1.1), ([1.0] * 4, 1.1), ([1, 2, 3, 4, 5], 4.0), ([0.5, 0.5, 0.5, 9.0], 2.625)]
)
def test_beta_is_the_third_quartile_of_growth_and_at_least_1_1(growths, beta):
    assert growth_bound(growths) == pytest.approx(beta)


def unfinished(*lengths):
    return {RequestId(group, 0): length for group, length in enumerate(lengths)}


@given(lengths=st.lists(st.integers(1, 100), max_size=12), finished=st.integers(0, 150), longest=st.integers(1, 100))
def test_only_those_of_the_last_tenth_that_outgrew_history_migrate(lengths, finished, longest):
    total = len(lengths) + finished
    chosen = migrating(unfinished(*lengths), total=total, highest_median=longest, beta=1.2)
    if 10 * len(lengths) > total:
        assert chosen == []
    else:
        assert chosen == [RequestId(g, 0) for g, length in enumerate(lengths) if length > 1.2 * longest]


def test_the_bounds_themselves_do_not_migrate_and_do_count():
    assert migrating(unfinished(111), total=10, highest_median=100, beta=1.1) == [RequestId(0, 0)]
    assert migrating(unfinished(110), total=10, highest_median=100, beta=1.1) == []
    assert migrating(unfinished(500), total=9, highest_median=100, beta=1.1) == []


def test_the_shorter_half_stays_in_the_step():
    assert [route(group, 5) for group in range(5)] == ["intra-step"] * 2 + ["inter-step"] * 3
    assert route(0, 1) == "inter-step"


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), step=st.integers(1, 2), data=st.data())
def test_the_target_is_the_least_loaded_worker_of_a_later_group(counts, step, data):
    ranges = worker_ranges(counts, step)
    loads = {worker: data.draw(st.integers(0, 5)) for worker in range(sum(counts))}
    group = data.draw(st.integers(0, len(counts) - 1))
    target = intra_step_target(group, ranges, loads)
    if group == len(counts) - 1:
        assert target is None
        return
    later = {worker for workers in ranges[group + 1 :] for worker in workers}
    assert target in later
    assert loads[target] == min(loads[worker] for worker in later)
