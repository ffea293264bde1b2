"""The index knows what the directories know, whatever happens to it."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer import GossamerError
from gossamer.experiments import index as module
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.export import curve_rows, run_rows, write_table
from gossamer.experiments.index import Index


def store(directory, seed, accuracy=0.5, status="done"):
    experiment = Experiment(seed=seed)
    place = directory / experiment.id
    place.mkdir(parents=True, exist_ok=True)
    about = {"id": experiment.id, "cell": experiment.cell, "label": experiment.label}
    (place / "run.json").write_text(json.dumps({**about, "experiment": experiment.to_dict()}))
    rows = [{"round": r, "accuracy": accuracy, "node_accuracy": [0.1, 0.2]} for r in (0, 5)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if status != "unfinished":
        (place / "done.json").write_text(json.dumps({"status": status, "seconds": 2.5}))
    return place


def test_a_row_holds_settings_status_and_figures(tmp_path):
    place = store(tmp_path, 3)
    (row,) = Index(tmp_path).refresh()
    assert (row["path"], row["id"], row["seed"], row["label"]) == (place.name, place.name, 3, "Momentum Tracking")
    assert (row["status"], row["final_accuracy"], row["last_round"], row["seconds"]) == ("done", 0.5, 5, 2.5)
    assert row["final_validation_accuracy"] is None
    assert (tmp_path / "index.sqlite").exists()


def test_only_what_has_changed_is_read_again(tmp_path, monkeypatch):
    places = [store(tmp_path, seed, status="unfinished") for seed in range(4)]
    Index(tmp_path).refresh()
    read = []
    real = module.index_row
    monkeypatch.setattr(module, "index_row", lambda run: read.append(run.directory) or real(run))
    assert len(Index(tmp_path).refresh()) == 4
    assert read == []
    (places[1] / "done.json").write_text(json.dumps({"status": "diverged", "reason": "far away"}))
    shutil.rmtree(places[2])
    store(tmp_path / "deeper", 9)
    rows = {row["id"]: row for row in Index(tmp_path).refresh()}
    assert len(rows) == 4
    assert (rows[places[1].name]["status"], rows[places[1].name]["reason"]) == ("diverged", "far away")
    assert len(read) == 2


@pytest.mark.parametrize("damage", ["text", "cut", "columns", "deleted"])
def test_a_damaged_index_is_made_anew(tmp_path, damage):
    for seed in range(30):
        store(tmp_path, seed)
    before = Index(tmp_path).refresh()
    path = tmp_path / "index.sqlite"
    if damage == "text":
        path.write_text("this is no database at all" * 100)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "columns":
        import contextlib
        import sqlite3

        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("ALTER TABLE runs DROP COLUMN label")
    else:
        path.unlink()
    assert Index(tmp_path).refresh() == before
    assert Index(tmp_path).refresh() == before


def test_a_damaged_run_is_left_out(tmp_path, caplog):
    store(tmp_path, 0)
    (store(tmp_path, 1) / "run.json").write_text("{")
    assert [row["seed"] for row in Index(tmp_path).refresh()] == [0]
    assert "left out of the index" in caplog.text


def test_runs_that_may_only_be_read_are_indexed_in_memory(tmp_path, monkeypatch):
    store(tmp_path, 0)
    (tmp_path / "index.sqlite").mkdir()  # what sqlite cannot open, also for root
    assert [row["seed"] for row in Index(tmp_path).refresh()] == [0]


def test_many_at_once_agree(tmp_path):
    for seed in range(40):
        store(tmp_path, seed)
    code = "import sys; from gossamer.experiments.index import Index; print(len(Index(sys.argv[1]).refresh()))"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate()[0].strip() for process in processes] == ["40"] * 4


def test_csv_of_runs_and_curves(tmp_path):
    store(tmp_path / "a", 0)
    store(tmp_path / "b", 1, status="unfinished")
    write_table(run_rows([tmp_path / "a", tmp_path / "b"]), tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["status"], row["final_accuracy"]) for row in rows] == [
        ("0", "done", "0.5"), ("1", "unfinished", "0.5")
    ]  # fmt: skip
    assert (Path(rows[0]["path"]) / "run.json").is_file()
    curves = curve_rows([tmp_path])
    assert [(row["seed"], row["round"], row["node_accuracy"]) for row in curves if row["seed"] == 0] == [
        (0, 0, "0.1 0.2"), (0, 5, "0.1 0.2")
    ]  # fmt: skip


def test_parquet_of_runs(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'gossamer[data]'")
    store(tmp_path, 0)
    store(tmp_path, 1)
    write_table(run_rows([tmp_path]), tmp_path / "runs.parquet")
    table = parquet.read_table(tmp_path / "runs.parquet")
    assert sorted(table["seed"].to_pylist()) == [0, 1]
    assert table["final_accuracy"].to_pylist() == [0.5, 0.5]


def test_what_cannot_be_exported_gets_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(GossamerError, match="There is no directory"):
        run_rows([tmp_path / "nowhere"])
    with pytest.raises(GossamerError, match="No runs in"):
        run_rows([tmp_path])
    with pytest.raises(GossamerError, match=r"let its name end in \.csv or \.parquet"):
        write_table([{"a": 1}], tmp_path / "runs.xlsx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"pip install 'gossamer\[data\]'"):
        write_table([{"a": 1}], tmp_path / "runs.parquet")
