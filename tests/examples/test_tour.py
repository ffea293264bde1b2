"""The notebook runs from top to bottom, and what is stored in it is what it shows."""

from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "examples" / "tour.ipynb"


def kinds(notebook) -> list[set[str]]:
    """The kinds of output of every cell of code."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [{kind for out in cell.outputs for kind in out.get("data", {out.output_type: ""})} for cell in cells]


# What jupyter_client and its libraries warn of is theirs to fix.
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(600)
def test_the_tour_runs_from_top_to_bottom():
    nbformat = pytest.importorskip("nbformat", reason="pip install -e '.[dev]'")
    nbclient = pytest.importorskip("nbclient", reason="pip install -e '.[dev]'")
    stored = nbformat.read(TOUR, as_version=4)
    fresh = nbformat.read(TOUR, as_version=4)
    nbclient.NotebookClient(fresh, timeout=250, kernel_name="python3").execute()
    assert kinds(fresh) == kinds(stored)
    shown = kinds(fresh)
    assert sum("image/png" in kind for kind in shown) == 3, "partition, graph and run"
    assert sum("text/html" in kind for kind in shown) == 5, "data, bar and run, history, facts, bars of a sweep"
    text = str(fresh.cells)
    assert "Momentum Tracking has the highest mean test accuracy" in text
    assert "Momentum Tracking <progress" in text
    assert "100%" in text
