import pytest

from sestina.core.errors import DataError
from sestina.reproduction.figures.agreement import agreement
from sestina.reproduction.figures.beside import beside
from tests.unit.analysis.test_figures import looked_at
from tests.unit.reproduction.helpers import cell

CELLS = [
    cell("small, slow", 1.0, 1.05),
    cell("small, fast", 2.0, 1.5),
    cell("small, whole", 3910, 1000, unit="s", kind="fitted", table="figure 8"),
]


def test_agreement_counts_what_was_predicted_and_nothing_else():
    caption = looked_at(agreement(CELLS))
    assert "1 of 2 predicted values are within 10%" in caption
    assert "within 15.0%" in caption


def test_agreement_draws_every_cell_in_the_row_of_its_table():
    [axes] = agreement(CELLS).figure.axes
    points = [tuple(point) for group in axes.collections for point in group.get_offsets()]
    assert sorted(points) == sorted([(1.05, 0.0), (0.75, 0.0), (1000 / 3910, 1.0)])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Paper v1, table 1", "Paper v1, figure 8"]


def test_agreement_of_nothing_predicted_is_refused():
    with pytest.raises(DataError, match="no cell is predicted"):
        agreement(CELLS[2:])


def test_a_table_has_two_bars_for_each_value_and_names_the_farthest():
    picture = beside(CELLS, "Paper v1", "table 1")
    assert "'small, fast', by -25.0%" in looked_at(picture)
    [axes] = picture.figure.axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.0, 1.05, 1.5]
    assert [text.get_text() for text in axes.texts] == ["+5%", "-25%"]


def test_a_fitted_value_is_never_the_farthest():
    cells = [cell("a", 1.0, 1.01), cell("b", 1.0, 5.0, kind="fitted")]
    assert "'a', by +1.0%" in beside(cells, "Paper v1", "table 1").caption


def test_a_table_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(DataError, match="no value is of Paper v1, table 9; there are Paper v1, figure 8; Paper v1"):
        beside(CELLS, "Paper v1", "table 9")


def test_values_of_several_units_have_no_common_axis():
    with pytest.raises(DataError, match="values in s and in x have no common axis"):
        beside([*CELLS, cell(unit="s")], "Paper v1", "table 1")
