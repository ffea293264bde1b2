"""An experiment becomes a run directory, whatever happens on the way."""

import json
import os
import shutil
import signal
import time
from importlib import import_module
from pathlib import Path

import pytest

from gossamer import GossamerError, methods
from gossamer.errors import DiskError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.job import mark_failed
from gossamer.experiments.store import StoredRun, add_row, find_runs
from gossamer.experiments.training import ATTEMPT, Execution, begin, finish, train
from gossamer.experiments.user_files import load_python
from tests.processes import start

TINY = Experiment(rounds=6, batch_size=16, lr=0.05, evaluations=3, nodes=4, partition="k-class:k=5")


def test_equal_experiments_have_equal_names_however_they_are_written():
    spelled = Experiment(
        dataset="Digits", method="Momentum_Tracking:beta=0.9", model="Small CNN", rounds=6, batch_size=16, lr=0.05,
        evaluations=3, nodes=4, partition="k-class:k=5", epochs=20,
    )  # fmt: skip
    assert spelled.id == TINY.id
    other = Experiment.from_dict({**TINY.to_dict(), "seed": 1, "lr": 0.1})
    assert other.id != TINY.id
    assert other.cell == TINY.cell
    assert Experiment.from_dict({**TINY.to_dict(), "method": "dsgd"}).cell != TINY.cell


def test_stored_results_keep_their_names():
    stored = find_runs(Path(__file__).parents[2] / "results" / "runs")
    for run in stored:
        assert (run.experiment.id, run.experiment.cell) == (run.directory.name, run.cell)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a file of methods with `factor` in a constant and more lines at the end, and load it."""
    monkeypatch.setattr(methods.Method, "_registry", dict(methods.Method._registry))

    def write(factor=1.0, more=""):
        path = tmp_path / "own_methods.py"
        path.write_text(OWN.format(factor=factor) + more)
        load_python([path])
        return path

    return write


OWN = """
from dataclasses import dataclass
from gossamer.methods import Facts, Method

FACTOR = {factor}

class Plain(Method):
    name = "plain"
    facts = Facts(title="Plain", sends=0)
    def step(self, state, x, grad, lr, net, round):
        x.sub_(grad, alpha=lr * FACTOR)

@dataclass(frozen=True, eq=False)
class Needy(Plain):
    name = "needy"
    facts = Facts(title="Needy", sends=0)
    gamma: float
    delta: float = 1.0

class Keeper(Plain):
    name = "keeper"
    facts = Facts(title="Keeper", sends=0)
    def __init__(self, k: int = 1):
        self.tool = (k, object())
"""


def test_own_methods_of_any_kind_have_names_that_stay(own):
    own()
    for method in ("plain", "needy:gamma=0.5", "keeper:k=2"):
        first, second = (Experiment(method=method) for _ in range(2))
        assert (first.id, first.cell) == (second.id, second.cell)
        assert Experiment(method=method, seed=1).cell == first.cell
    assert Experiment(method="keeper:k=2").id != Experiment(method="keeper:k=3").id
    assert Experiment(method="needy:delta=1,gamma=0.5").label == "Needy (gamma=0.5)"
    assert Experiment(method="needy:gamma=0.5,delta=2").label == "Needy (gamma=0.5, delta=2.0)"
    with pytest.raises(GossamerError, match="missing a required argument: 'gamma'"):
        Experiment(method="needy").check()


def changed(**values):
    return Experiment.from_dict({**TINY.to_dict(), "rounds": 2, "evaluations": 1, **values})


def test_a_run_is_made_again_when_the_file_of_its_method_has_changed(own, tmp_path, caplog):
    experiment, place = changed(method="plain"), tmp_path / "run"
    own(1.0)
    first = train(experiment, place).rows
    own(1.0, "# a remark\n")
    assert StoredRun(place).finished
    own(0.0)
    assert not StoredRun(place).finished
    assert StoredRun(place).status_in_plan == "to make"
    assert not caplog.messages
    again = train(experiment, place)
    assert caplog.messages == [f"{place} was made with another version of the file of its method and is made again."]
    assert again.rows[-1]["loss"] == again.rows[0]["loss"] != first[-1]["loss"]
    assert again.finished


def test_what_was_begun_with_another_version_is_not_continued(own, tmp_path):
    experiment, place = changed(method="plain", rounds=6, evaluations=3), tmp_path / "run"
    own(1.0)
    interrupt_at(2, experiment, place)
    own(0.0)
    rows = train(experiment, place).rows
    assert [row["round"] for row in rows] == [0, 2, 4, 6]
    assert len({row["loss"] for row in rows}) == 1


def test_a_run_is_made_again_when_the_file_of_its_graph_has_changed(tmp_path, caplog):
    graph, place = tmp_path / "graph.txt", tmp_path / "run"
    experiment = changed(topology=f"file:{graph}")
    graph.write_text("0 1\n1 2\n2 3\n")
    assert changed(topology=f"File: {graph}").file_versions == experiment.file_versions != {}
    train(experiment, place)
    graph.write_text("# the same\n2 3\n0 1\n1 2\n")
    assert train(experiment, place).finished
    assert not caplog.messages
    graph.write_text("0 1\n1 2\n2 3\n3 0\n")
    run = train(experiment, place)
    assert "another version of the file of its topology" in caplog.text
    assert len(run.about["graph"]["edges"]) == 4
    graph.unlink()
    assert StoredRun(place).finished, "nothing is known against it"


def test_the_same_settings_under_another_id_are_refused_with_a_sentence(tmp_path):
    run = train(changed(), tmp_path / "run")
    about = json.loads((run.directory / "run.json").read_text())
    (run.directory / "run.json").write_text(json.dumps({**about, "id": "0" * 16}))
    with pytest.raises(GossamerError, match="of the same settings, but its method had other hyper-parameters then"):
        train(changed(), run.directory)


def test_what_fails_before_its_first_figures_leaves_nothing(tmp_path):
    with pytest.raises(GossamerError):
        train(changed(model="vgg-11"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_failed_run_is_unfinished_while_it_is_tried_again(tmp_path):
    experiment, place = changed(), tmp_path / "run"
    mark_failed(place, experiment, "no data")
    seen = []
    train(experiment, place, Execution(callbacks=[lambda row: seen.append(StoredRun(place).status)]))
    assert set(seen) == {"unfinished"}
    assert StoredRun(place).status == "done"


def interrupt_at(round, experiment, place):
    def callback(row):
        if row["round"] == round:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(experiment, place, Execution(callbacks=[callback]))


def test_the_seconds_are_those_of_all_attempts(tmp_path):
    mark, metrics = tmp_path / "checkpoints" / ATTEMPT, tmp_path / "metrics.jsonl"
    begin(tmp_path, {})
    for _ in range(2):  # two attempts of 100 seconds, of which nothing remains but their files
        add_row(tmp_path, {"round": 0})
        os.utime(mark, (1e9, 1e9))
        os.utime(metrics, (1e9 + 100, 1e9 + 100))
        begin(tmp_path, {})
    finish(tmp_path, {"status": "done", "seconds": 5.0})
    assert StoredRun(tmp_path).outcome == {"status": "done", "seconds": 205.0}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"learning_rate": 1}, "x.toml: There is no key 'learning_rate'"),
        ({"nodez": 1}, "did you mean 'nodes'"),
        ({"nodes": "8"}, "x.toml: nodes must be a whole number, not '8'; write it as in nodes = 8"),
        ({"nodes": 2.5}, "nodes must be a whole number, not 2.5"),
        ({"lr": True}, "lr must be a number, not True"),
        ({"method": 3}, "method must be a word in quotes, not 3"),
        ({"nodes": 0}, "nodes must be at least 1"),
        ({"lr": -1}, "lr must be a finite number of at least 0"),
        ({"epochs": 0}, "The experiment has no length"),
        ({"augment": "flip"}, "no augment 'flip'"),
        ({"nonfinite": "ignore"}, "no nonfinite 'ignore'"),
    ],
)
def test_bad_values_get_a_sentence(values, words):
    with pytest.raises(GossamerError) as caught:
        Experiment.from_dict(values, "x.toml")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "digitz"}, "did you mean 'digits'"),
        ({"model": "lenett"}, "did you mean 'lenet'"),
        ({"partition": "k-class"}, "needs k"),
        ({"topology": "hypercube", "nodes": 6}, "power of two"),
        ({"method": "d2"}, "lazy"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
    ],
)
def test_impossible_combinations_are_refused_before_any_data_is_read(change, words):
    with pytest.raises(GossamerError) as caught:
        Experiment.from_dict({**TINY.to_dict(), **change}).check()
    assert words in str(caught.value)


def test_a_run_is_a_directory(tmp_path):
    run = train(TINY, tmp_path / TINY.id)
    assert sorted(p.name for p in run.directory.iterdir()) == ["done.json", "metrics.jsonl", "run.json"]
    assert run.status == "done"
    assert run.finished
    assert [row["round"] for row in run.rows] == [0, 2, 4, 6]
    assert 0 < run.rows[-1]["validation_accuracy"] <= 1
    assert run.experiment == TINY
    assert run.label == "Momentum Tracking"
    assert run.about["graph"]["edges"] == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert [sum(c > 0 for c in counts) for counts in run.about["partition"]["counts"]] == [5] * 4
    assert run.about["environment"]["threads"] >= 1
    assert find_runs(tmp_path) == [run]


def test_a_finished_run_is_not_made_again(tmp_path):
    train(TINY, tmp_path / "run")
    before = (tmp_path / "run" / "run.json").stat().st_mtime_ns
    train(TINY, tmp_path / "run")
    assert (tmp_path / "run" / "run.json").stat().st_mtime_ns == before


def test_a_diverged_run_is_finished_and_says_why(tmp_path):
    run = train(Experiment.from_dict({**TINY.to_dict(), "lr": 1e6, "rounds": 30}), tmp_path / "run")
    assert run.status == "diverged"
    assert " of node " in run.outcome["reason"]
    assert run.finished


def _train_with_many_checkpoints(experiment, place):
    import_module("gossamer.engine.checkpoints").SECONDS_BETWEEN_CHECKPOINTS = 0.0
    train(experiment, place)


def test_a_killed_run_goes_on_to_the_same_figures(tmp_path):
    experiment = Experiment.from_dict({**TINY.to_dict(), "rounds": 40, "evaluations": 20})
    whole = train(experiment, tmp_path / "whole")
    process = start(tmp_path / "printed", _train_with_many_checkpoints, experiment, tmp_path / "killed")
    while len(StoredRun(tmp_path / "killed").rows) < 3:
        assert process.exitcode is None
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not StoredRun(tmp_path / "killed").finished
    resumed = train(experiment, tmp_path / "killed")
    timing = ("seconds", "samples_per_second")
    rows = [[{k: v for k, v in row.items() if k not in timing} for row in run.rows] for run in (whole, resumed)]
    assert rows[0] == rows[1]
    assert resumed.outcome["seconds"] > resumed.rows[-1]["seconds"]


def test_rows_of_a_lost_attempt_are_replaced(tmp_path):
    def row(r, attempt):
        return {"round": r, "epoch": r / 2, "accuracy": 0.5, "loss": attempt}

    for r in (0, 2, 4):
        add_row(tmp_path, row(r, 1))
    add_row(tmp_path, row(2, 2))
    assert StoredRun(tmp_path).rows == [row(0, 1), row(2, 2)]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "att')
    assert len(StoredRun(tmp_path).rows) == 2


def test_places_without_runs_and_damaged_files_get_a_sentence(tmp_path):
    with pytest.raises(GossamerError, match="There is no directory"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(GossamerError, match="No runs in"):
        find_runs(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(GossamerError, match=r"Cannot read .*run\.json"):
        _ = StoredRun(tmp_path).label


@pytest.mark.parametrize("augment", ["none", "erasing"])
def test_augmentation_is_a_choice(tmp_path, augment):
    experiment = Experiment.from_dict({**TINY.to_dict(), "augment": augment, "rounds": 2, "evaluations": 1})
    run = train(experiment, tmp_path / augment)
    assert json.loads((run.directory / "run.json").read_text())["experiment"]["augment"] == augment


def test_what_a_killed_process_had_begun_is_removed_when_the_run_begins_again(tmp_path):
    stale = [tmp_path / ".run.json.0123456789abcdef.tmp", tmp_path / "checkpoints" / ".x.ckpt.0123456789abcdef.tmp"]
    mine = tmp_path / ".notes.tmp"
    for path in (*stale, mine):
        path.parent.mkdir(exist_ok=True)
        path.write_text("half a file")
    begin(tmp_path, {})
    assert [path.exists() for path in (*stale, mine)] == [False, False, True]


@pytest.mark.parametrize("round", [0, 2])
def test_a_run_directory_that_is_removed_meanwhile_is_not_made_again(tmp_path, round):
    def remove(row):
        if row["round"] == round:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(
        DiskError, match=r"/run(/checkpoints)? has been removed while the run was using it; put it back"
    ):
        train(changed(), tmp_path / "run", Execution(callbacks=[remove]))
    assert not (tmp_path / "run").exists()
