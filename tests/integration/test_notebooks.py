"""The notebooks of analysis/ run from top to bottom on the recorded runs beside them."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ANALYSIS = Path(__file__).parents[2] / "analysis"
LIMIT_S = 240
pytestmark = [
    pytest.mark.slow,
    # Jupyter's own: where it looks for settings, and sockets that its kernel's end leaves to the collector.
    pytest.mark.filterwarnings("default::DeprecationWarning:jupyter_core"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
]


@pytest.mark.parametrize("path", sorted(ANALYSIS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_cell_shows_what_it_is_for(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=LIMIT_S, startup_timeout=LIMIT_S, resources={"metadata": {"path": str(ANALYSIS)}}
    ).execute()
    shown = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"][1:]
    assert shown
    for outputs in shown:
        html = [output.data.get("text/html", "") for output in outputs if output.output_type == "execute_result"]
        assert html
        assert all("data:image/png;base64," in text or "measured" in text for text in html)
