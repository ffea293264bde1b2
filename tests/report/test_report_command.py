"""`gossamer report`."""

import subprocess
import sys

import pytest

from gossamer.cli import main
from tests.report.stored_runs import copied


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit:
        main(["report", *arguments])
    return exit.value.code


def test_a_page_figures_and_tables(runs, tmp_path, capsys):
    place = tmp_path / "runs"
    copied(runs[0], place / "one")
    out, figures, tables = tmp_path / "r.html", tmp_path / "figures", tmp_path / "tables"
    assert call(str(place), "-o", str(out), "--figures", str(figures), "--tables", str(tables), "--title", "Mine") == 0
    told = capsys.readouterr().out
    assert f"report: {out} (1 runs)" not in told
    assert f"report: {out} (1 run)" in told
    assert "<title>Mine</title>" in out.read_text()
    assert (figures / "accuracy.pdf").exists()
    assert (tables / "ranking.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "There is nothing to report on"),
        (["nowhere"], "There is no directory nowhere"),
        ([".", "--outt", "x"], "--outt"),
    ],
)
def test_mistakes_get_a_sentence(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(*arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


def test_a_report_needs_no_torch(runs, tmp_path):
    copied(runs[0], tmp_path / "runs" / "one")
    code = """
import sys
import gossamer.report
assert "torch" not in sys.modules
sys.modules["torch"] = None  # what imports it now, fails
from gossamer.cli import main
main(sys.argv[1:])
"""
    places = [str(tmp_path / "runs"), "-o", str(tmp_path / "r.html"), "--tables", str(tmp_path / "tables")]
    command = [sys.executable, "-c", code, "report", *places, "--figures", str(tmp_path / "figures")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").exists()
