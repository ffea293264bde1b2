"""Figures reach TensorBoard and Weights & Biases, and a logger in trouble does not stop a run."""

import pytest

from gossamer import GossamerError
from gossamer.experiments import loggers
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.loggers import check_loggers, logging_to
from gossamer.experiments.sweep import run_sweep
from tests.processes import start

EXPERIMENT = Experiment(rounds=4, batch_size=16, evaluations=2, nodes=2, partition="k-class:k=5", lr=0.05)
ROWS = [{"round": r, "accuracy": r / 10, "node_accuracy": [0.1, 0.2], "tracking_error": None} for r in (0, 5, 10)]


def scalars(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    return {tag: [(e.step, round(e.value, 4)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_gets_every_figure_of_a_sweep(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'gossamer[tensorboard]'")
    outcome = run_sweep([EXPERIMENT], tmp_path, loggers=["tensorboard"])
    assert outcome.done == 1
    found = scalars(tmp_path / EXPERIMENT.id / "tensorboard")
    assert [step for step, _ in found["accuracy"]] == [0, 2, 4]
    assert {"validation_accuracy", "node_accuracy/0", "node_accuracy/1", "consensus_distance"} <= set(found)


def test_tensorboard_forgets_what_a_lost_attempt_wrote(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'gossamer[tensorboard]'")
    for rows in (ROWS, [{**row, "accuracy": 0.9} for row in ROWS[1:]]):
        with logging_to(["tensorboard"], tmp_path, EXPERIMENT, "p") as (take,):
            for row in rows:
                take(row)
    assert scalars(tmp_path / "tensorboard")["accuracy"] == [(0, 0.0), (5, 0.9), (10, 0.9)]


def _log_offline(place):
    with logging_to(["wandb-offline"], place, Experiment(), "tables") as (take,):
        for row in ROWS:
            take(row)


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path):
    pytest.importorskip("wandb", reason="pip install 'gossamer[wandb]'")
    process = start(tmp_path / "printed", _log_offline, tmp_path)
    process.join(100)
    assert process.exitcode == 0, (tmp_path / "printed").read_text()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    for words in (b"node_accuracy/1", b"k-class:k=4", b"Momentum Tracking lr=0.01 seed=0"):
        assert words in content


def test_a_logger_that_fails_is_left_out_for_the_rest_of_the_run(tmp_path, monkeypatch, caplog):
    taken = []

    def fragile(stack, directory, experiment, project):
        def take(row):
            taken.append(row["round"])
            raise OSError("the server is away")

        return take

    monkeypatch.setitem(loggers._OPEN, "tensorboard", fragile)
    with logging_to(["tensorboard"], tmp_path, EXPERIMENT, "p") as (take,):
        for row in ROWS:
            take(row)
    assert taken == [0]
    assert "The logger tensorboard failed (the server is away)" in caplog.text


def test_loggers_that_are_not_there_are_named(monkeypatch):
    with pytest.raises(GossamerError, match="no logger 'wanbd'; did you mean 'wandb'"):
        check_loggers(["wanbd"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"wandb-offline needs wandb; run: pip install 'gossamer\[wandb\]'"):
        check_loggers(["wandb-offline"])
