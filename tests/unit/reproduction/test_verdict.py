import pytest

from sestina.core.errors import DataError
from sestina.reproduction.verdict import TIE, inversions, undecided, verdict
from tests.unit.reproduction.helpers import cell


def test_the_median_is_of_predicted_cells_alone():
    cells = [cell(simulated=2.1), cell(simulated=1.7), cell(simulated=2.4), cell(simulated=9.0, kind="fitted")]
    median, order, equal = verdict(cells)
    assert median.value == pytest.approx(0.15)
    assert (median.met, order.met, equal.met) == (False, True, None)


def test_every_cell_of_the_ablation_counts():
    near, far = (cell(paper="Seer v3", table="table 4", simulated=value) for value in (2.1, 1.7))
    assert [figure.met for figure in verdict([near, near])] == [True, True, None, True]
    last = verdict([near, near, far])[-1]
    assert (last.value, last.met) == (pytest.approx(0.15), False)


def test_an_order_is_inverted_within_one_table_unit_and_model():
    slow, fast = cell("small, slow", 1.0, 1.5), cell("small, fast", 1.2, 1.4)
    assert inversions([slow, fast]) == [(slow, fast)]
    assert not inversions([slow, cell("small, fast", 1.2, 1.6)])
    assert not inversions([slow, cell("large, fast", 1.2, 1.4)])
    assert not inversions([slow, cell("small, fast", 1.2, 1.4, unit="s")])
    assert not inversions([slow, cell("small, fast", 1.2, 1.4, table="table 2")])
    assert not inversions([slow, cell("small, equal", 1.0, 1.4)])


def test_values_that_are_equal_have_no_order():
    slow = cell("small, slow", 1.0, 2.0)
    near, far = cell("small, near", 1.2, 2.0 * (1 - 0.9 * TIE)), cell("small, far", 1.2, 2.0 * (1 - 1.1 * TIE))
    assert (inversions([slow, near]), undecided([slow, near])) == ([], [(slow, near)])
    assert (inversions([slow, far]), undecided([slow, far])) == ([(slow, far)], [])
    assert not undecided([slow, cell("small, same", 1.0, 2.0)]), "no order is published"
    assert not undecided([slow, cell("large, near", 1.2, 2.0)])
    assert verdict([slow, near])[2].value == 1


def test_nothing_predicted_is_nothing_to_judge():
    with pytest.raises(DataError, match="no cell is predicted"):
        verdict([cell(kind="fitted")])
