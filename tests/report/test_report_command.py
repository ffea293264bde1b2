"""`gossamer report`."""

import subprocess
import sys

import pytest

from tests.report.stored_runs import copied, unfinished


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "There is nothing to report on"),
        (["nowhere"], "There is no directory nowhere"),
        ([".", "--outt", "x"], "--outt"),
    ],
)
def test_mistakes_get_a_sentence(arguments, words, tmp_path, monkeypatch, gossamer):
    monkeypatch.chdir(tmp_path)
    _, err = gossamer("report", *arguments, code=2)
    assert words in err
    assert err.count("\n") == 1


def test_a_page_figures_and_tables_need_no_torch(runs, tmp_path):
    copied(runs[0], tmp_path / "runs" / "one")
    # Only a graph and a partition to draw: matplotlib takes its time.
    unfinished(copied(runs[0], tmp_path / "begun" / "one"), 0)
    code = """
import sys
import gossamer.report
assert "torch" not in sys.modules
sys.modules["torch"] = None  # what imports it now, fails
from gossamer.cli import main
for line in (
    "report runs -o r.html --tables tables --title Mine",
    "report begun -o begun.html --figures figures",
):
    try:
        main(line.split())
    except SystemExit as end:
        assert end.code == 0
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "report: r.html (1 run)"
    assert "<title>Mine</title>" in (tmp_path / "r.html").read_text()
    assert (tmp_path / "figures" / "graph.pdf").exists()
    assert (tmp_path / "tables" / "ranking.tex").exists()
