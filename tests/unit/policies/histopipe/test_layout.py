import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.histopipe.layout import ranking_groups, worker_ranges

RESPONSES = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=5), min_size=1, max_size=40)


@given(responses=RESPONSES, data=st.data())
def test_groups_partition_the_prompts_and_rise_in_median(responses, data):
    num_groups = data.draw(st.integers(1, len(responses)))
    groups = ranking_groups(responses, num_groups)
    assert sorted(prompt for group in groups for prompt in group) == list(range(len(responses)))
    sizes = [len(group) for group in groups]
    assert len(sizes) == num_groups
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    medians = [[statistics.median(responses[prompt]) for prompt in group] for group in groups]
    assert all(max(shorter) <= min(longer) for shorter, longer in pairwise(medians))


def test_the_median_counts_and_not_the_longest():
    assert ranking_groups([[1, 1, 900], [5, 5, 5], [2, 3, 4]], 3) == [[0], [2], [1]]


@pytest.mark.parametrize("num_groups", [0, 3])
def test_more_groups_than_prompts_are_refused(num_groups):
    with pytest.raises(AssertionError):
        ranking_groups([[1], [2]], num_groups)


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=8), step=st.integers(1, 9))
def test_groups_share_the_line_of_workers(counts, step):
    ranges = worker_ranges(counts, step)
    assert [len(workers) for workers in ranges] == counts
    assert sorted(worker for workers in ranges for worker in workers) == list(range(sum(counts)))


@given(num_groups=st.integers(1, 8), each=st.integers(1, 5), step=st.integers(1, 6))
def test_with_equal_counts_two_steps_complement_each_other(num_groups, each, step):
    def group_of(step):
        ranges = worker_ranges([each] * num_groups, step)
        return {worker: group for group, workers in enumerate(ranges) for worker in workers}

    one, two = group_of(step), group_of(step + 1)
    assert {one[worker] + two[worker] for worker in one} == {num_groups - 1}


def test_odd_steps_ascend():
    assert worker_ranges([1, 2, 3], 1) == [range(1), range(1, 3), range(3, 6)]
    assert worker_ranges([1, 2, 3], 2) == [range(5, 6), range(3, 5), range(3)]
