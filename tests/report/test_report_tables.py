"""Tables as Markdown, LaTeX and CSV."""

import csv
import io
import json

import pytest

from gossamer.experiments.store import StoredRun
from gossamer.report import write_tables
from gossamer.report.comparison import collect
from gossamer.report.tables import Table, latex, markdown, matrix, ranking
from tests.report.stored_runs import copied, marked, unfinished


def test_the_ranking_shows_mean_and_deviation_and_the_chosen_step_size(runs):
    (panel,) = collect(runs).panels
    table = ranking(panel)
    for rank, (row, entry) in enumerate(zip(table.rows, panel.entries, strict=True), start=1):
        assert row[:3] == [str(rank), entry.method, f"{100 * entry.mean:.1f} ± {100 * entry.std:.2f}"]
        assert row[3:5] == [f"{entry.cell.lr:g}*", "2"]
        assert row[table.head.index("worst node (%)")] == f"{100 * entry.worst_node:.1f}"
    ahead = panel.conclusion.clear
    assert table.best == ({(0, 1), (0, 2)} if ahead else set())


def test_bold_needs_a_lead_over_the_seeds(runs, tmp_path):
    """Two seeds, on which one method is above the other by much and almost equally; then by as much with one seed."""
    leads = {"dsgdm": (0.500, 0.510), "momentum-tracking": (0.900, 0.911)}
    mine = [copied(run, tmp_path / run.directory.name) for run in runs if run.experiment.lr == 0.05]
    for run in [run for run in mine if run.experiment.method in leads]:
        figure = leads[run.experiment.method][run.experiment.seed]
        *before, last = run.rows
        lines = [json.dumps(row) for row in [*before, {**last, "accuracy": figure}]]
        (run.directory / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    mine = [StoredRun(run.directory) for run in mine if run.experiment.method in leads]
    (panel,) = collect(mine).panels
    assert ranking(panel).best == {(0, 1), (0, 2)}
    assert panel.best.method == "Momentum Tracking"
    assert "ahead of DSGDm by 40.1 points over two seeds." in panel.conclusion.sentence
    (panel,) = collect([run for run in mine if run.experiment.seed == 0]).panels
    assert ranking(panel).best == set()
    assert panel.conclusion.warning.startswith("One seed ")


def test_what_is_missing_is_said(runs, tmp_path):
    mine = [copied(run, tmp_path / str(k)) for k, run in enumerate(runs)]
    (panel,) = collect([*(unfinished(r, 0) for r in mine[:4]), *(marked(r, "diverged") for r in mine[4:8])]).panels
    rows = {row[1]: row for row in ranking(panel).rows}
    assert rows["DSGDm"] == ["–", "DSGDm", "unfinished", "–", "0 of 2", "–", "–", "–", "–"]
    assert rows["Gradient Tracking"][2] == "diverged"
    assert not ranking(panel).best


@pytest.mark.parametrize("panels", [2, 9])
def test_the_matrix_has_in_bold_what_is_ahead_in_its_setting(runs, tmp_path, panels):
    many = [
        copied(run, tmp_path / f"{k}-{run.directory.name}", weight_decay=0.01 * k)
        for k in range(panels)
        for run in runs[: 8 if k else 12]
    ]
    comparison = collect(many)
    table = matrix(comparison)
    assert len(table.best) == sum(panel.conclusion.clear for panel in comparison.panels)
    if panels == 2:
        assert table.head == ["method", "weight decay 0", "weight decay 0.01"]
        assert [row[0] for row in table.rows] == comparison.methods
        assert table.rows[comparison.methods.index("Momentum Tracking")][2] == "–"
    else:
        assert table.head == ["setting", *comparison.methods]
        assert [row[0] for row in table.rows] == [panel.name for panel in comparison.panels]
    for r, c in table.best:
        setting = table.head[c] if panels == 2 else table.rows[r][0]
        (panel,) = (p for p in comparison.panels if p.name == setting)
        assert panel.best.method == (table.rows[r][0] if panels == 2 else table.head[c])


def test_markdown_and_latex_guard_what_means_something_to_them():
    table = Table(["method", "a_b (%)"], [["x|y & z", "1.0 ± 0.10"]], frozenset({(0, 1)}))
    assert markdown(table) == "| method | a_b (%) |\n|---|---|\n| x\\|y & z | **1.0 ± 0.10** |\n"
    assert latex(table).splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"method & a\_b (\%) \\",
        r"\midrule",
        r"x|y \& z & \textbf{1.0 $\pm$ 0.10} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_all_tables_are_written(runs, tmp_path):
    other = [copied(run, tmp_path / "runs" / run.directory.name, partition="iid") for run in runs]
    paths = write_tables([*runs, *other], tmp_path / "tables")
    assert sorted(p.name for p in paths) == sorted(p.name for p in (tmp_path / "tables").iterdir())
    names = {"results.csv"} | {
        f"{stem}.{kind}" for stem in ("matrix", "ranking-iid", "ranking-k-class-k-5") for kind in ("md", "tex", "csv")
    }
    assert {p.name for p in paths} == names
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables" / "results.csv").read_text())))
    assert len(rows) == 6
    comparison = collect([*runs, *other])
    assert [float(row["mean"]) for row in rows] == [e.mean for p in comparison.panels for e in p.entries]
    assert {row["partition"] for row in rows} == {"iid", "k-class:k=5"}
