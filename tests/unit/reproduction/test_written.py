import pytest

from sestina.core.errors import DataError
from sestina.reproduction.written import read_cells, write_cells
from tests.unit.reproduction.helpers import cell

CELLS = [cell("small, slow", 1.0, 1.05), cell("small, whole", 3910, 1000, unit="s", kind="fitted")]


def test_cells_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "cells.json"
    for cells in (CELLS[:1], CELLS):
        write_cells(path, cells)
        assert read_cells(path) == cells
    assert [each.name for each in tmp_path.iterdir()] == ["cells.json"]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no such folder"):
        write_cells(tmp_path / "none" / "cells.json", CELLS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file; launch/reproduce.py --cells .* writes it"),
        ("[]", "holds no cells"),
        ("{", "not a file of predicted cells"),
        ('[{"paper": "Paper v1"}]', "not a file of predicted cells"),
    ],
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path, text, message):
    path = tmp_path / "cells.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_cells(path)
