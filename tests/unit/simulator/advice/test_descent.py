import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.simulator.advice.axes import Axis
from sestina.simulator.advice.descent import descend


def axis(size, own=0, *, ordered=True):
    options = tuple({} if place == own else {"place": place} for place in range(size))
    return Axis(name="axis", options=options, ordered=ordered)


def searched(axes, cost, start=None, *, allowed=lambda _: True):
    asked = []

    def counted(point):
        asked.append(point)
        return cost(point) if allowed(point) else math.inf

    return descend(axes, start or tuple(each.own for each in axes), allowed=allowed, cost=counted), set(asked)


@given(size=st.integers(1, 200), own=st.integers(0, 199), best=st.integers(0, 199))
def test_a_valley_is_walked_to_its_floor_in_few_steps(size, own, best):
    own, best = own % size, best % size
    found, asked = searched([axis(size, own)], lambda point: abs(point[0] - best))
    assert found == (best,)
    assert len(asked) <= 12 + 3 * math.log2(size)


def test_axes_are_searched_again_when_another_has_changed():
    costs = {(0, 0): 5, (0, 1): 6, (1, 0): 4, (1, 1): 1, (2, 0): 7, (2, 1): 0}
    found, _ = searched([axis(3, ordered=False), axis(2, ordered=False)], costs.__getitem__)
    assert found == (2, 1)


def test_what_is_refused_is_stepped_over():
    found, asked = searched([axis(9)], lambda point: 8 - point[0], allowed=lambda point: point[0] not in (1, 2, 5))
    assert found == (8,)
    assert asked.isdisjoint({(1,), (2,), (5,)})


@pytest.mark.parametrize("ordered", [True, False])
def test_a_start_that_is_refused_is_left_for_any_that_is_not(ordered):
    axes = [axis(3, ordered=ordered), axis(3, ordered=ordered)]
    found, _ = searched(axes, sum, allowed=lambda point: point[1] == 2)
    assert found == (0, 2)


def test_where_nothing_is_allowed_the_start_remains():
    assert searched([axis(4)], sum, allowed=lambda _: False)[0] == (0,)


def test_what_is_hardly_better_is_not_gone_to():
    costs = [1.0, 0.996, 0.9]
    assert searched([axis(2, ordered=False)], lambda point: costs[point[0]])[0] == (0,)
    assert searched([axis(3, ordered=False)], lambda point: costs[point[0]])[0] == (2,)
