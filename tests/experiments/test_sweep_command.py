"""`gossamer sweep` and `gossamer export` as a user meets them."""

import json

import pytest

GRID = """
name = "tiny"
method = ["dsgd", "momentum-tracking", "relaysum"]
partition = ["k-class:k=5", "iid"]
lr = [0.01, 0.1]
rounds = 2
evaluations = 1
batch_size = 16
nodes = 2

[[override]]
when = {method = "relaysum"}
set = {topology = "chain"}
"""


@pytest.fixture(autouse=True)
def _beside_the_grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gossamer.cli.progress.GRACE_PERIOD", 1e6)
    (tmp_path / "grid.toml").write_text(GRID)


def test_from_a_file_to_a_ranking_and_a_table(gossamer, tmp_path):
    out, _ = gossamer("sweep", "grid.toml", "--dry-run")
    assert "12 runs in runs/tiny, 0 of them finished, 12 to make" in out
    out, err = gossamer("sweep", "grid.toml", "--only", "partition=iid", "seed=0")
    assert err == ""
    assert "runs: runs/tiny (6 done in" in out
    out, _ = gossamer("sweep", "grid.toml")
    lines = out.splitlines()
    assert lines[0].split()[:5] == ["partition", "method", "topology", "accuracy", "worst"]
    assert [line.split()[0] for line in lines[1:7]] == ["k-class:k=5"] * 3 + ["iid"] * 3
    assert any("RelaySum" in line and "chain" in line for line in lines)
    assert "of those tried (0.01, 0.1)" in out
    assert "(12 done (6 of them before)" in out
    result = json.loads(gossamer("sweep", "grid.toml", "--json")[0])
    assert (result["skipped"], len(result["cells"]), result["directory"]) == (12, 6, "runs/tiny")
    plan = json.loads(gossamer("sweep", "grid.toml", "--dry-run", "--json")[0])
    assert {row["status"] for row in plan} == {"done"}
    assert gossamer("export", "runs", "-o", "all.csv")[0] == "all.csv: 12 lines\n"
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 13
    assert gossamer("export", "--curves", "-o", "curves.csv")[0] == "curves.csv: 24 lines\n"


def test_runs_that_end_are_told_to_a_log(gossamer, monkeypatch):
    monkeypatch.setattr("gossamer.cli.progress.GRACE_PERIOD", 0.0)
    _, err = gossamer("sweep", "grid.toml", "--only", "method=dsgd")
    assert [line.partition(" % in ")[0][:-4] for line in err.splitlines()] == [
        f"{n} of 4: DSGD, partition {partition}, lr {lr}: "
        for n, (partition, lr) in enumerate(
            [("k-class:k=5", 0.01), ("k-class:k=5", 0.1), ("iid", 0.01), ("iid", 0.1)], start=1
        )
    ]


def test_a_run_that_cannot_be_read_is_left_out(gossamer, tmp_path, caplog):
    arguments = ("sweep", "grid.toml", "--only", "method=dsgd", "--only", "partition=iid")
    gossamer(*arguments)
    damaged = next((tmp_path / "runs" / "tiny").glob("*/run.json"))
    damaged.write_text("{")
    (cell,) = json.loads(gossamer(*arguments, "--json")[0])["cells"]
    assert len(cell["candidates"]) == 1
    assert f"Cannot read {damaged.relative_to(tmp_path)}" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sweep", "nowhere.toml"), "There is no file nowhere.toml"),
        (("sweep", "grid.toml", "--only", "seed"), "--only needs key=value, such as --only seed=0 or k=4,10, not"),
        (("sweep", "grid.toml", "--only", "seed=x"), "There is no experiment of grid.toml with seed 'x'"),
        (("sweep", "grid.toml", "--only", "sed=0"), "did you mean 'seed'"),
        (("sweep", "grid.toml", "--only", "seed=5"), "There is no experiment of grid.toml with seed '5'"),
        (("sweep", "grid.toml", "--jobs", "0"), "at least one job"),
        (("sweep", "grid.toml", "--logger", "tensorbord"), "did you mean 'tensorboard'"),
        (("export", "nowhere"), "There is no directory nowhere"),
        (("export", "-o", "runs.xls"), ".csv or .parquet"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(gossamer, arguments, words):
    _, err = gossamer(*arguments, code=2)
    assert words in err
    assert len(err.splitlines()) == 1
