"""Runs whose nodes come and go: on the command line, on disk, in tables and in charts."""

import json
import math

import pytest

from gossamer.cli import main
from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.export import curve_rows
from gossamer.experiments.grid import Grid
from gossamer.experiments.loggers import _figures
from gossamer.experiments.store import StoredRun, find_runs
from gossamer.report.charts import changes_in, line_charts
from gossamer.report.comparison import collect
from gossamer.report.figures import draw_run, panel_figures
from gossamer.report.plotly_charts import line_figure

SHORT = {"rounds": 12, "batch_size": 16, "nodes": 4, "partition": "k-class:k=5", "evaluations": 3, "lr": 0.05}
CHURN = "2 leaves 1; 6 leaves 3; 9 joins 1"


def gossamer(*arguments, code=0):
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    assert ended.value.code == code


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A comparison with random changes, and a run with a list of them."""
    place = tmp_path_factory.mktemp("churn")
    options = [part for key, value in SHORT.items() for part in (f"--{key.replace('_', '-')}", value)]
    gossamer(
        "compare", "--methods", "dsgdm,momentum-tracking", "--seeds", "0,1", *options,
        "--churn", "random:up=5,down=3,by=rounds,at_least=2", "--out", place / "compare",
    )  # fmt: skip
    gossamer("run", *options, "--churn", CHURN, "--out", place / "listed")
    return place


def test_metrics_say_who_is_there(place):
    rows = StoredRun(place / "listed").rows
    assert [row["present"] for row in rows] == [[0, 1, 2, 3], [0, 2, 3], [0, 2], [0, 1, 2]]
    assert rows[1]["changes"] == [(2, "leaves", [1])]
    assert len(rows[2]["node_accuracy"]) == 2
    assert StoredRun(place / "listed").experiment.churn == CHURN


def test_all_methods_see_the_same_changes_and_seeds_differ(place):
    found = {}
    for run in find_runs(place / "compare" / "runs"):
        found.setdefault(run.experiment.seed, []).append([row["changes"] for row in run.rows])
    assert found[0][0] == found[0][1] != found[1][0] == found[1][1]


def test_charts_mark_the_changes(place):
    (panel,) = collect(find_runs(place / "listed")).panels
    charts = {chart.key: chart for chart in line_charts(panel)}
    rows = StoredRun(place / "listed").rows
    per_epoch = rows[-1]["round"] / rows[-1]["epoch"]
    marks = charts["accuracy"].marks
    assert [word for _, word in marks] == ["leaves", "leaves", "joins"]
    assert [epoch * per_epoch for epoch, _ in marks] == pytest.approx([2, 6, 9])
    assert charts["accuracy"].caption.endswith("A node leaves at a dashed line and returns at a dotted one.")
    assert charts["accuracy-bytes"].marks == charts["node-accuracy"].marks == ()
    looks = collect(find_runs(place / "listed")).looks
    shapes = line_figure(charts["accuracy"], looks)["layout"]["shapes"]
    assert [shape["line"]["dash"] for shape in shapes] == ["dash", "dash", "dot"]
    lines = panel_figures(panel, looks)["accuracy"].axes[0].lines
    assert [line.get_linestyle() for line in lines[-3:]] == ["--", "--", ":"]
    assert len(draw_run(rows).axes[0].lines) == 2 + 3
    assert (place / "compare" / "report.html").read_text().count('"shapes"') >= 1


def test_with_several_seeds_those_of_the_first_are_marked(place):
    (panel,) = collect(find_runs(place / "compare" / "runs")).panels
    chart = line_charts(panel)[0]
    first = next(run for run in find_runs(place / "compare" / "runs") if run.experiment.seed == 0)
    assert list(chart.marks) == changes_in(first.rows)
    assert "with seed 0" in chart.caption
    nodes = next(chart for chart in line_charts(panel) if chart.key == "node-accuracy")
    assert all(math.isfinite(y) for series in nodes.series for y in series.y)


def test_tables_and_loggers_go_by_the_numbers_of_the_nodes(place):
    last = curve_rows([place / "listed"])[-1]
    row = StoredRun(place / "listed").rows[-1]
    assert (last["present"], last["changes"]) == ("0 1 2", "9 joins 1")
    assert "node_accuracy_3" not in last
    middle = curve_rows([place / "listed"])[-2]
    assert {"node_accuracy_0", "node_accuracy_2"} <= middle.keys()
    assert "node_accuracy_1" not in middle
    figures = _figures(row)
    assert (figures["present"], figures["node_accuracy/2"]) == (3, row["node_accuracy"][2])


@pytest.mark.parametrize("present", [[0, 1], [0, 1, 7]])
def test_rows_that_make_no_sense_are_refused(place, tmp_path, present):
    for file in (place / "listed").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    told = {**json.loads(lines[-1]), "present": present}
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(told)]) + "\n")
    with pytest.raises(InputError):
        find_runs(tmp_path)


def test_experiments_carry_it_and_those_without_keep_their_names():
    assert Experiment(churn="").id == Experiment().id
    assert Experiment(churn=CHURN).id != Experiment().id != Experiment(churn="random:up=1,down=1").id
    grid = Grid.from_dict({"churn": ["", CHURN], "nodes": 4})
    assert [e.churn for e in grid.experiments] == ["", CHURN]


@pytest.mark.parametrize(
    ("churn", "sentence"),
    [
        ("2 leaves 1; 6 leaves 1", "it is not there then"),
        ("2 leaves 0 1 2 3", "All nodes are gone"),
        ("12 leaves 1", "the run has the rounds 0 to 11"),
        ("sometimes", "Churn is written as in"),
        ("random:up=1,down=1,at_least=5", "at_least is 5, but there are 4 nodes"),
    ],
)
def test_the_command_line_refuses_with_a_sentence(tmp_path, capsys, churn, sentence):
    gossamer("run", "--nodes", 4, "--rounds", 12, "--churn", churn, "--out", tmp_path / "run", code=2)
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run").exists()
