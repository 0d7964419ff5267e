from pathlib import Path

import nbformat
import pytest

from sestina.analysis.run import read_run
from sestina.telemetry.lengths import read_lengths

ANALYSIS = Path(__file__).parents[3] / "analysis"
NOTEBOOKS = sorted(ANALYSIS.glob("*.ipynb"))


def test_there_are_notebooks_and_recorded_runs():
    assert {path.stem for path in NOTEBOOKS} >= {
        "tail_latency",
        "chunk_size_sweep",
        "staleness_sweep",
        "drafting",
        "scheduling",
        "reproduction",
    }
    runs = [path for path in (ANALYSIS / "data").iterdir() if path.is_dir()]
    assert runs
    assert all(read_run(path).steps for path in runs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_cells_only_call(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    for cell in notebook.cells:
        assert not cell.metadata
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            assert not any(word in cell.source for word in ("def ", "class ", "for step", "matplotlib", "lambda"))


def test_the_published_lengths_are_of_the_schema_of_forced_lengths():
    assert read_lengths(ANALYSIS / "data" / "quickstart").num_rows > 256
