"""Runs as a table for other programs."""

import csv
import json
from pathlib import Path

import pytest

from gossamer import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.export import curve_rows, run_rows, write_table


def store(directory, seed, accuracy=0.5, status="done"):
    experiment = Experiment(seed=seed, nodes=2)
    place = directory / experiment.id
    place.mkdir(parents=True, exist_ok=True)
    about = {"id": experiment.id, "cell": experiment.cell, "label": experiment.label}
    (place / "run.json").write_text(json.dumps({**about, "experiment": experiment.to_dict()}))
    figures = {"accuracy": accuracy, "node_accuracy": [0.1, 0.2]}
    rows = [{"round": r, "epoch": r / 5, **figures} for r in (0, 5)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if status != "unfinished":
        (place / "done.json").write_text(json.dumps({"status": status, "seconds": 2.5}))
    return place


def test_a_row_holds_settings_status_and_figures(tmp_path):
    place = store(tmp_path, 3)
    (row,) = run_rows([tmp_path])
    assert (row["path"], row["id"], row["seed"], row["label"]) == (str(place), place.name, 3, "Momentum Tracking")
    assert (row["status"], row["final_accuracy"], row["last_round"], row["seconds"]) == ("done", 0.5, 5, 2.5)
    assert row["final_validation_accuracy"] is None
    assert list(tmp_path.iterdir()) == [place]


def test_a_damaged_run_is_left_out(tmp_path, caplog):
    store(tmp_path, 0)
    (store(tmp_path, 1) / "run.json").write_text("{")
    other = store(tmp_path, 2) / "run.json"
    other.write_text(other.read_text().replace('"weight_decay"', '"weight_growth"'))
    assert [row["seed"] for row in run_rows([tmp_path])] == [0]
    assert caplog.text.count("It is left out.") == 2


@pytest.mark.parametrize("damage", ["", "{}", '{"status": "dreaming"}', "[1]", '{"status": "failed"}'])
def test_a_run_whose_end_is_not_known_is_left_out(tmp_path, caplog, damage):
    store(tmp_path, 0)
    (store(tmp_path, 1) / "done.json").write_text(damage)
    assert [row["seed"] for row in run_rows([tmp_path])] == [0]
    assert "done.json" in caplog.text
    assert "delete this" in caplog.text


FIGURES = '"epoch": 2'


@pytest.mark.parametrize(
    "line",
    [
        b'{"round": 7, "acc',
        b"\xff\xfe",
        b"[1]",
        b'{"round": 7}',
        b'{"round": 7, "accuracy": null, %s}' % FIGURES.encode(),
        b'{"round": "7", "accuracy": 0.5, %s}' % FIGURES.encode(),
        b'{"round": 7, "accuracy": NaN, %s}' % FIGURES.encode(),
    ],
)
def test_figures_end_where_they_cannot_be_read(tmp_path, line):
    with (store(tmp_path, 0) / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    (row,) = run_rows([tmp_path])
    assert (row["last_round"], row["final_accuracy"]) == (5, 0.5)


@pytest.mark.parametrize("change", [{"experiment": None}, {"experiment": [1]}, {"environment": [1]}, {"label": 3}])
def test_a_run_that_is_not_described_is_left_out_and_the_key_is_named(tmp_path, caplog, change):
    store(tmp_path, 0)
    path = store(tmp_path, 1) / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert [row["seed"] for row in run_rows([tmp_path])] == [0]
    assert f"at `$.{next(iter(change))}`; delete this run's directory" in caplog.text


GRAPH = {"name": "g", "nodes": 2, "period": 1, "edges": [[0, 1]], "p": 1.0, "spectral_gap": 1.0, "degree": 1}
PARTITION = {"recipe": "iid", "classes": ["a", "b"], "counts": [[1, 2], [3, 4]], "label_distance": 0.0}
ROW = {"round": 0, "epoch": 0.0, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("run.json", {"graph": {**GRAPH, "edges": [[0, 2]]}}, "An edge names node 2"),
        ("run.json", {"graph": {**GRAPH, "edges": [[0, 1, 1]]}}, "Expected `array` of length <= 2"),
        ("run.json", {"graph": {**GRAPH, "edges": []}}, "its graph is not connected"),
        ("run.json", {"graph": {**GRAPH, "nodes": 3}}, "its graph has 3 nodes, its experiment 2"),
        ("run.json", {"graph": {**GRAPH, "period": 0}}, "Expected `int` >= 1"),
        ("run.json", {"partition": {**PARTITION, "counts": [["many", 2], [3, 4]]}}, "Expected `int`, got `str`"),
        ("run.json", {"partition": {**PARTITION, "counts": [[1, 2]]}}, "is not one of 2 classes over 2 nodes"),
        ("run.json", {"partition": {**PARTITION, "counts": [[1, 2], [3]]}}, "is not one of 2 classes over 2 nodes"),
        ("run.json", {"experiment": {"nodes": 10**400}}, "nodes must be at most"),
        ("done.json", {"status": "done", "seconds": [2.5]}, "Expected `float`, got `array`"),
        ("done.json", {"status": "diverged", "reason": "nan", "round": -1}, "Expected `int` >= 0"),
        ("metrics.jsonl", {**ROW, "node_accuracy": [0.5] * 3}, "not those of a run of 2 nodes"),
        ("metrics.jsonl", {**ROW, "round": 5}, "not those of a run of 2 nodes"),
        ("run.json", b'{"unknown": ' + b"[" * 100_000, "maximum recursion depth"),
        ("done.json", b'{"status": "\xff"}', "Cannot read"),
    ],
)
def test_a_run_that_makes_no_sense_is_left_out(tmp_path, caplog, file, content, reason):
    store(tmp_path, 0)
    path = store(tmp_path, 1) / file
    if isinstance(content, dict):
        before = json.loads(path.read_text()) if file == "run.json" else {}
        content = json.dumps({**before, **content}).encode()
    path.write_bytes(content)
    assert [row["seed"] for row in run_rows([tmp_path])] == [0]
    assert f"{path}: " in caplog.text
    assert reason in caplog.text


def test_a_byte_order_mark_changes_nothing(tmp_path):
    place = store(tmp_path, 0)
    before = run_rows([tmp_path])
    for name in ("run.json", "metrics.jsonl", "done.json"):
        (place / name).write_bytes(b"\xef\xbb\xbf" + (place / name).read_bytes())
    assert run_rows([tmp_path]) == before


def test_figures_that_cannot_be_read_leave_the_run_out(tmp_path, caplog):
    store(tmp_path, 0)
    path = store(tmp_path, 1) / "metrics.jsonl"
    path.unlink()
    path.mkdir()
    assert [row["seed"] for row in run_rows([tmp_path])] == [0]
    assert "Cannot read" in caplog.text


def test_places_that_overlap_name_a_run_once(tmp_path):
    store(tmp_path / "runs", 0)
    assert len(run_rows([tmp_path, tmp_path / "runs"])) == 1


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
    first = [row for row in curves if row["seed"] == 0]
    assert [(row["round"], row["node_accuracy_0"], row["node_accuracy_1"]) for row in first] == [
        (0, 0.1, 0.2),
        (5, 0.1, 0.2),
    ]
    write_table(curves, tmp_path / "curves.csv")
    assert (tmp_path / "curves.csv").read_text().splitlines()[0].endswith("accuracy,node_accuracy_0,node_accuracy_1")


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
