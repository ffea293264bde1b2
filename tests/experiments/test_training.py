"""An experiment becomes a run directory, whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gossamer import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import StoredRun, add_row, find_runs
from gossamer.experiments.training import train

TINY = Experiment(rounds=6, batch_size=16, lr=0.05, evaluations=3, nodes=4, partition="k-class:k=5")


def test_equal_experiments_have_equal_names_however_they_are_written():
    spelled = Experiment(
        method="Momentum_Tracking:beta=0.9", model="small-cnn", rounds=6, batch_size=16, lr=0.05, evaluations=3,
        nodes=4, partition="k-class:k=5", epochs=20,
    )  # fmt: skip
    assert spelled.id == TINY.id
    other = Experiment.from_dict({**TINY.to_dict(), "seed": 1, "lr": 0.1})
    assert other.id != TINY.id
    assert other.cell == TINY.cell
    assert Experiment.from_dict({**TINY.to_dict(), "method": "dsgd"}).cell != TINY.cell


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
    assert "loss of node" in run.outcome["reason"]
    assert run.finished


def test_a_killed_run_goes_on_to_the_same_figures(tmp_path):
    experiment = Experiment.from_dict({**TINY.to_dict(), "rounds": 120, "evaluations": 6})
    whole = train(experiment, tmp_path / "whole")
    code = (
        "import sys; from pathlib import Path; import gossamer.engine.run as r; r.SECONDS_BETWEEN_CHECKPOINTS = 0.0;"
        "from gossamer.experiments.experiment import Experiment; from gossamer.experiments.training import train;"
        f"train(Experiment.from_dict({experiment.to_dict()!r}), Path(sys.argv[1]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "killed")])
    while len(StoredRun(tmp_path / "killed").rows) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not StoredRun(tmp_path / "killed").finished
    resumed = train(experiment, tmp_path / "killed")
    timing = ("seconds", "samples_per_second")
    rows = [[{k: v for k, v in row.items() if k not in timing} for row in run.rows] for run in (whole, resumed)]
    assert rows[0] == rows[1]


def test_rows_of_a_lost_attempt_are_replaced(tmp_path):
    for r in (0, 2, 4):
        add_row(tmp_path, {"round": r, "attempt": 1})
    add_row(tmp_path, {"round": 2, "attempt": 2})
    assert StoredRun(tmp_path).rows == [{"round": 0, "attempt": 1}, {"round": 2, "attempt": 2}]
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
