"""The ranking that sweep and compare print."""

import json

import pytest

from gossamer.cli.output import ONLY_ONE, print_ranking
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.selection import select
from gossamer.experiments.store import StoredRun


@pytest.fixture
def printed(tmp_path, capsys):
    """Print the ranking of runs, each given by method, step size, seed and accuracy or status."""

    def printed(*runs):
        stored = []
        for number, (method, lr, seed, result) in enumerate(runs):
            experiment = Experiment(method=method, lr=lr, seed=seed, rounds=5)
            directory = tmp_path / str(number)
            directory.mkdir()
            about = {"id": experiment.id, "cell": experiment.cell, "label": experiment.label}
            (directory / "run.json").write_text(json.dumps({**about, "experiment": experiment.to_dict()}))
            if isinstance(result, float):
                names = ("accuracy", "accuracy_min", "averaged_accuracy", "validation_accuracy")
                row = {"round": 5, "epoch": 1.0, **dict.fromkeys(names, result)}
                (directory / "metrics.jsonl").write_text(json.dumps(row) + "\n")
            if result != "unfinished":
                outcome = {"status": "done"} if isinstance(result, float) else {"status": result, "reason": "because"}
                (directory / "done.json").write_text(json.dumps(outcome))
            stored.append(StoredRun(directory))
        print_ranking(select(stored))
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize(("other", "word"), [("diverged", "diverged"), ("failed", "failed"), ("unfinished",) * 2])
def test_why_there_is_no_accuracy(printed, other, word):
    line = printed(("dsgd", 0.1, 0, "diverged"), ("dsgd", 0.01, 0, other)).splitlines()[1]
    assert line.split()[:2] == ["DSGD", word]


def test_one_step_size_for_all_is_said_once_and_what_else_there_is_to_know(printed):
    out = printed(("dsgd", 0.1, 0, 0.5), ("dsgd", 0.1, 0, 0.6), ("dsgdm", 0.1, 0, 0.4), ("dsgdm", 0.1, 1, "failed"))
    notes = [line.removeprefix("note: ") for line in out.splitlines() if line.startswith("note: ")]
    assert notes[0].startswith("DSGD: 1 run is stored more than once; left out: ")
    assert notes[1:] == ["DSGDm: 1 run failed at lr 0.1: because", ONLY_ONE]


BEST = "; step size: the best on validation data"


def test_what_stands_under_the_table(printed):
    caption = "test accuracy: mean over nodes of each node's own model"
    out = printed(("dsgd", 0.1, 0, 0.5), ("dsgd", 0.01, 0, 0.6), ("dsgdm", 0.1, 0, 0.6))
    assert out.splitlines()[3] == caption + BEST


def test_one_step_size_is_not_the_best_of_any(printed):
    out = printed(("dsgd", 0.1, 0, 0.5), ("dsgdm", 0.1, 0, "diverged"))
    assert BEST not in out
    assert ONLY_ONE in out


def test_runs_that_failed_say_nothing_about_step_sizes(printed):
    assert ONLY_ONE not in printed(("dsgd", 0.1, 0, "failed"), ("dsgdm", 0.1, 0, "failed"))


def test_methods_with_other_seeds(printed):
    out = printed(("dsgd", 0.1, 0, 0.5), ("dsgd", 0.1, 1, 0.9), ("dsgdm", 0.1, 0, 0.6))
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["DSGDm", "DSGD"]
    assert "note: the methods have different seeds; they are ranked on those that all have (0)" in out
