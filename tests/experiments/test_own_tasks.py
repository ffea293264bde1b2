"""examples/own_tasks.py: a regression, a multi-label task and a transformer, simulated, on four processes, reported."""

import json
import os
from pathlib import Path

import pytest

from gossamer import models, tasks
from gossamer._common.formatting import MetricFacts
from gossamer.cli import main
from gossamer.cli.output import print_ranking
from gossamer.data import loading
from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.export import run_rows
from gossamer.experiments.grid import read_experiment, read_grid
from gossamer.experiments.real_nodes import train_here
from gossamer.experiments.selection import ranked, select
from gossamer.experiments.store import StoredRun
from gossamer.experiments.training import train
from gossamer.experiments.user_files import VERSIONS, load_python
from gossamer.models import image_classifiers
from gossamer.report import write_figures, write_report, write_tables
from gossamer.report.charts import LineChart, line_charts
from gossamer.report.comparison import ComparisonPanel, collect
from tests.processes import run_nodes
from tests.report.stored_runs import copied

FILE = Path(__file__).parents[2] / "examples" / "own_tasks.py"
SHARED = {"nodes": 4, "partition": "k-class:k=1", "rounds": 6, "batch_size": 20, "evaluations": 2}
TASKS = [
    {"dataset": "houses", "model": "linear", "loss": "mse", "lr": 0.02, "evaluate": "own"},
    {"dataset": "symptoms", "model": "linear", "loss": "bce", "lr": 0.2},
    {"dataset": "texts", "model": "next-token", "loss": "token-cross-entropy", "lr": 0.1},
]
REAL = [Experiment(**SHARED, **task) for task in TASKS]
METRICS = [MetricFacts("mae", False, False), MetricFacts("f1", True, False), MetricFacts("perplexity", False, False)]


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """The file's names are known in this module only."""
    registries = (loading.OWN, image_classifiers.OWN, tasks.LOSSES, tasks.METRICS, VERSIONS)
    before = [dict(known) for known in registries]
    load_python([FILE])
    yield
    for known, names in zip(registries, before, strict=True):
        known.clear()
        known.update(names)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[StoredRun]:
    """Every task with two methods, of which one also runs with another step size."""
    place = tmp_path_factory.mktemp("runs")
    others = [{"method": "dsgdm"}, {"lr": 1e-4}]
    experiments = [Experiment(**{**e.to_dict(), **change}) for e in REAL for change in ({}, *others)]
    return [train(e, place / e.id) for e in experiments]


def _all(out: Path) -> None:
    load_python([FILE])
    for number, experiment in enumerate(REAL):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)  # as after a restart, the meeting is a new one
        train_here(experiment, out / experiment.dataset)


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory) -> list[StoredRun]:
    """Every task with one method on four processes."""
    place = tmp_path_factory.mktemp("real")
    run_nodes(4, place, _all, place)
    return [StoredRun(place / experiment.dataset) for experiment in REAL]


@pytest.mark.timeout(240)
def test_four_processes_give_the_figures_of_the_simulator(runs, real_runs):
    for real, simulated, metric in zip(real_runs, runs[::3], METRICS, strict=True):
        assert real.metric == simulated.metric == metric
        assert len(real.rows) == len(simulated.rows) == 3
        for ours, theirs in zip(real.rows, simulated.rows, strict=True):
            assert ours.keys() == theirs.keys()
            for key in set(theirs) - {"seconds", "samples_per_second"}:
                value = theirs[key]
                assert ours[key] == (value if value is None else pytest.approx(value, rel=1e-3, abs=1e-6)), key


@pytest.mark.timeout(240)
def test_one_report_shows_real_runs_beside_simulated_ones(runs, real_runs, tmp_path, capsys):
    comparison = collect([*runs, *real_runs])
    panels = {panel.name: panel for panel in comparison.panels}
    for experiment, real, metric in zip(REAL, real_runs, METRICS, strict=True):
        simulated = panels[f"{experiment.dataset} · simulation: {metric.name}"]
        processes = panels[f"{experiment.dataset} · 4 processes: {metric.name}"]
        assert len(simulated.entries) == 2
        (entry,) = processes.entries
        assert (entry.cell.runs, entry.method) == ([real], "Momentum Tracking")
        assert "on the machine that simulated all nodes" in _chart(simulated, f"{metric.name}-seconds").caption
        assert "of the node that took longest" in _chart(processes, f"{metric.name}-seconds").caption
        assert "stored more than once" not in " ".join([*simulated.notes, *processes.notes])
    assert comparison.conclusion.startswith(
        "In none of 6 settings (houses: mae, lower is better; symptoms: f1, higher is better; texts: perplexity, lower "
        "is better) is a method ahead of every other one. "
    )
    assert comparison.varied["network"] == ["processes", "simulated"]
    # Another seed on real nodes is not pooled with the simulated ones either.
    cells = select([runs[0], copied(real_runs[0], tmp_path / "other", seed=1)])
    assert [(cell.network, cell.seeds) for cell in cells] == [("simulated", 1), ("processes", 1)]
    assert [cell.to_dict()["network"] for cell in cells] == ["simulated", "processes"]
    alone = collect([*runs[:3], real_runs[0]])
    assert {panel.name for panel in alone.panels} == {"simulation", "4 processes"}
    assert "no method's test mae changes" in alone.conclusion
    print_ranking(alone.cells)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "network"
    assert {line.split()[0] for line in lines[1:4]} == {"simulated", "processes"}


def _chart(panel: ComparisonPanel, key: str) -> LineChart:
    return next(chart for chart in line_charts(panel) if chart.key == key)


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_conclusion_names_every_metric_and_its_direction(runs, tmp_path, seeds):
    numbered = [(run, seed) for run in runs for seed in range(1, seeds)]
    others = [copied(run, tmp_path / f"{run.experiment.id}-{seed}", seed=seed) for run, seed in numbered]
    conclusion = collect([*runs, *others]).conclusion
    measured = "houses: mae, lower is better; symptoms: f1, higher is better; texts: perplexity, lower is better"
    start = "In none of" if seeds == 1 else "Of"
    assert conclusion.startswith(f"{start} 3 settings ({measured})")


def test_one_report_ranks_every_task_by_its_metric_and_direction(runs, tmp_path):
    comparison = collect(runs)
    assert [(panel.settings["dataset"], panel.metric) for panel in comparison.panels] == [
        (experiment.dataset, metric) for experiment, metric in zip(REAL, METRICS, strict=True)
    ]
    for panel in comparison.panels:
        means = [entry.mean for entry in panel.entries]
        assert means == sorted(means, reverse=panel.metric.higher_is_better)
        tracked = next(e for e in panel.entries if e.method_name == "momentum-tracking")
        assert tracked.cell.lr != 1e-4, "the step size that hardly moves is the worst in either direction"
        nodes = [value for run in tracked.cell.runs for value in run.rows[-1][f"node_{panel.metric.name}"]]
        assert tracked.worst_node == (min if panel.metric.higher_is_better else max)(nodes)
    page = write_report(comparison, tmp_path / "report.html").read_text()
    for text in (
        "Mae (lower is better) is the mean over the nodes, each with its own model, on its node",
        "F1 (higher is better)", "the highest perplexity of any node", "Test perplexity", "houses: mae",
    ):  # fmt: skip
        assert text in page
    assert "ccuracy" not in page[: page.index("plotly.js")]
    names = {path.name for path in write_figures(comparison, tmp_path / "figures", ["svg"])}
    assert {"houses-mae.svg", "symptoms-node-f1.svg", "texts-perplexity-bytes.svg"} <= names
    tables = {path.name: path.read_text() for path in write_tables(comparison, tmp_path / "tables")}
    assert "test perplexity |" in tables["ranking-texts.md"]
    assert "%" not in tables["ranking-texts.md"]


def test_the_file_of_the_three_tasks_has_one_experiment_for_each_real_run():
    file = FILE.with_suffix(".toml")
    found = [
        read_experiment(file, dataset=dataset, method=method, seed=seed)
        for dataset in ("houses", "symptoms", "texts")
        for method in ("dsgdm", "momentum-tracking")
        for seed in (0, 1, 2)
    ]
    assert found == read_grid(file).experiments
    keys = ("model", "loss", "lr", "nodes", "partition")
    for real, ours in zip(found[3::6], REAL, strict=True):
        assert [getattr(real, key) for key in keys] == [getattr(ours, key) for key in keys]


def test_everything_that_shows_a_run_follows_its_metric(runs, tmp_path, capsys):
    houses = runs[0].directory
    with pytest.raises(SystemExit, match="0"):
        main(["show", "run", str(houses), "--plot", str(tmp_path / "curve.svg")])
    shown = capsys.readouterr().out
    assert "mae" in shown.splitlines()[1]
    assert "\nmae: lower is better\n" in shown
    assert "accuracy" not in shown
    with pytest.raises(SystemExit, match="0"):
        main(["show", "run", str(houses), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["metric"], told["higher_is_better"], told["network"]) == ("mae", False, "simulated")
    (row,) = run_rows([houses])
    assert (row["metric"], row["higher_is_better"], row["final_mae"]) == ("mae", False, runs[0].rows[-1]["mae"])
    assert row["network"] == "simulated"
    best = ranked(select(runs[:3]))[0].to_dict()
    assert (best["metric"], best["higher_is_better"]) == ("mae", False)
    assert best["mae"] == runs[0].rows[-1]["mae"] or best["label"] == "DSGDm"
    assert best["validation_mae"] > 0


def test_experiments_that_use_nothing_new_keep_their_ids():
    assert Experiment().id == "1b7f464c60c84004"
    assert Experiment(loss="cross-entropy", metric="accuracy").id == Experiment().id
    assert len({Experiment().id, Experiment(metric="perplexity").id, Experiment(evaluate="own").id}) == 3
    assert Experiment(nonfinite="stop").id == Experiment().id != Experiment(nonfinite="skip").id


def test_a_run_without_a_metric_measured_accuracy(tmp_path):
    experiment = Experiment(nodes=2, rounds=1, partition="iid", batch_size=16)
    train(experiment, tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    for key in ("loss", "metric", "evaluate"):
        del about["experiment"][key]
    del about["metric"]
    (tmp_path / "run.json").write_text(json.dumps(about))
    old = StoredRun(tmp_path)
    assert (old.metric, old.experiment.id) == (MetricFacts(), experiment.id)
    assert old.rows[-1]["accuracy"] > 0
    assert train(experiment, tmp_path).rows == old.rows


def test_what_an_experiment_cannot_use_is_refused_with_a_sentence(tmp_path):
    for values, why in (
        ({"loss": "mze"}, "no loss 'mze'; did you mean 'mse'"),
        ({"metric": "perplexty"}, "no metric 'perplexty'; did you mean 'perplexity'"),
        ({"dataset": "house"}, "no dataset 'house'; did you mean 'houses'"),
        ({"dataset": "houses"}, "The dataset houses is your own, so name a model for it"),
    ):
        with pytest.raises(InputError, match=why):
            Experiment(**values).check()
    with pytest.raises(InputError, match="no evaluate 'owned'; did you mean 'own'"):
        Experiment(evaluate="owned")
    loading.register("tests-missing")(lambda: loading.Dataset.from_tensors([[1.0], [2.0]] * 9, [0, 1] * 9))
    with pytest.raises(InputError, match="tests-missing has no test samples to evaluate on"):
        train(Experiment(dataset="tests-missing", model="linear", nodes=2, partition="iid", rounds=1), tmp_path)
    loading.register("no-data")(lambda: 5)
    with pytest.raises(InputError, match="'no-data' must return a Dataset, not int"):
        loading.load("no-data")
    with pytest.raises(InputError, match="'digits' is built in"):
        loading.register("digits")
    with pytest.raises(InputError, match="'LeNet' is built in"):
        models.register("LeNet")
