"""`gossamer paper` as a user meets it."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from gossamer.data.catalog import CATALOG


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A directory of its own on a machine without datasets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "no-data"))
    monkeypatch.setattr("gossamer.data.loading.cache_dir", lambda: tmp_path / "cache")
    folder = CATALOG["fashion-mnist"].system_folder
    if folder is not None and folder.exists():
        pytest.skip("the system has a package with Fashion-MNIST")


def test_the_list_names_items_runs_and_whether_the_data_is_here(gossamer):
    out, _ = gossamer("paper", "list")
    line = next(line for line in out.splitlines() if line.startswith("table2"))
    assert line.split()[-4:] == ["648", "72", "18", "missing"]
    assert "synthetic" in out


def test_the_list_as_json(gossamer):
    entries = {e["item"]: e for e in json.loads(gossamer("paper", "list", "--json")[0])}
    assert len(entries) == 15
    assert entries["table8"] == {
        "item": "table8",
        "title": "Table 8: ABm and GTAdam, LeNet on CIFAR-10",
        "datasets": ["cifar-10"],
        "missing": ["cifar-10"],
        "runs": {"full": 54, "quick": 6, "smoke": 3},
    }


def test_show_prints_the_recipe(gossamer):
    values = tomllib.loads(gossamer("paper", "show", "table3")[0])
    assert values["model"] == ["vgg-11", "resnet-34"]
    assert values["scale"]["quick"]["epochs"] == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel2"], "did you mean 'table2'"),
        (["show", "tabel2"], "did you mean 'table2'"),
        (["table2", "--scale", "fast"], "fast"),
        (["table2"], "Not on this machine: fashion-mnist, svhn, cifar-10."),
        (["table2", "--scale", "smoke", "--only", "cifar-10"], "--only needs key=value"),
        (["table2", "--scale", "smoke", "--only", "k=3"], "There is no experiment of table2 (smoke) with k '3'"),
        (["table2", "--scale", "smoke", "--only", "methode=dsgd"], "did you mean 'method'"),
        (["table2", "--scale", "smoke", "--seeds", "a"], "seeds must be whole numbers"),
        (["table2", "--scale", "smoke", "--lrs", "0.1;0.2"], "lrs must be numbers"),
        (["table2", "--scale", "smoke", "--jobs", "0"], "at least one job"),
        (["table8", "--scale", "smoke", "--existing"], "None of the runs of table8 is in out/paper/table8/runs yet."),
        (["synthetic", "--only", "k=3"], "trains nothing, so it has no --only"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words, gossamer):
    out, err = gossamer("paper", *arguments, code=2)
    assert words in err
    assert out == ""


def test_a_dry_run_makes_nothing(gossamer, tmp_path):
    out, err = gossamer("paper", "table3", "--scale", "full", "--dry-run", "--only", "k=2,method=dsgd,dsgdm", "seed=0")
    assert out.count("to make") == 2 * 2 * 5
    assert "Scale full: 20 runs" in err
    assert list(tmp_path.iterdir()) == []
    runs = json.loads(gossamer("paper", "table8", "--dry-run", "--json", "--seeds", "7")[0])["runs"]
    assert len(runs) == 6
    assert {r["experiment"]["seed"] for r in runs} == {7}


@pytest.mark.timeout(400)
def test_a_smoke_test_ends_with_the_comparison_and_says_that_digits_stand_in(gossamer, monkeypatch, tmp_path):
    command = ["table8", "--scale", "smoke", "--only", "method=abm,gtadam"]
    monkeypatch.setattr(sys, "argv", ["gossamer", "paper", *command])
    place = tmp_path / "out" / "paper" / "table8"
    dry = json.loads(gossamer("paper", *command, "--dry-run", "--json")[0])
    blocked = place / "runs" / dry["runs"][0]["id"] / "checkpoints"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a directory belongs")
    out, err = gossamer("paper", *command, code=1)
    assert "1 run failed" in out
    assert "1 done, 1 failed" in err
    blocked.unlink()

    out, err = gossamer("paper", *command)
    assert "2 done (1 of them before)" in err
    assert "k = 4 (digits in place of cifar-10)" in out
    assert "note: Not on this machine: cifar-10" in out
    assert "note: Not on this machine: cifar-10" in err
    assert "71.1 ± 0.20" not in out
    assert "\nno comparison: digits stand in\n" in out
    assert "ranking" not in out
    assert out.count("No comparison: digits stand in.") == 1
    assert "warning: everywhere: only one step size was tried (0.02)" in out
    page = (place / "report.html").read_text()
    assert "digits in place of cifar-10" in page[: page.index("</title>")]
    assert "no comparison: digits stand in" in page
    assert "71.1 ± 0.20" not in page
    measured = json.loads((place / "measured.json").read_text())
    assert measured["scale"] == "smoke"
    assert [m["method"] for m in measured["panels"][0]["methods"]] == ["abm", "gtadam"]
    assert len(measured["cells"]) == len(list((place / "runs").glob("*/run.json"))) == 2
    first = measured["panels"][0]["methods"][0]
    assert first["mean"] > 0
    assert (first["paper_mean"], first["paper_std"], first["difference"]) == (None, None, None)
    assert measured["panels"][0]["ranking"]["sentence"] == "no comparison: digits stand in"
    assert measured["commands"] == ["gossamer paper table8 --scale smoke --only method=abm,gtadam"]
    assert (measured["runs"], measured["epochs"]) == (2, None)


@pytest.mark.timeout(400)
def test_what_is_there_is_used_and_a_figure_is_drawn(gossamer, tmp_path):
    share = ["--scale", "smoke", "--runs", "shared", "--only", "method=dsgd"]
    gossamer("paper", "figure5", *share)
    assert list((tmp_path / "out" / "paper" / "figure5" / "figures").iterdir())
    out, err = gossamer("paper", "table2", *share, "--only", "dataset=cifar-10", "--existing", "--json")
    measured = json.loads(out)
    assert [p["title"] for p in measured["panels"]] == ["cifar-10, k = 4 (digits in place of cifar-10)"]
    assert measured["panels"][0]["methods"][0]["seeds"] == 1
    (made,) = (tmp_path / "shared").glob("*/run.json")
    made.write_text("{")
    out, err = gossamer("paper", "table2", *share, "--only", "dataset=cifar-10", "--existing", code=2)
    assert "None of the runs of table2 is in shared yet." in err


@pytest.mark.timeout(400)
def test_the_synthetic_experiment_prints_nothing_but_json_if_asked(gossamer, monkeypatch, tmp_path):
    # The figures take most of the time, and the tests of gossamer synthetic look at them.
    monkeypatch.setattr("gossamer.report.synthetic.write_report", lambda result, out, command: out / "report.html")
    out, err = gossamer("paper", "synthetic", "--scale", "smoke", "--json")
    place = tmp_path / "out" / "paper" / "synthetic"
    assert f"report: {Path('out/paper/synthetic/report.html')}" in err
    assert json.loads(out) == json.loads((place / "measured.json").read_text())
    assert "last quarter of 200 rounds" in " ".join(err.split())


def test_the_synthetic_experiment_at_full_scale_is_the_papers(gossamer):
    out, _ = gossamer("paper", "synthetic", "--dry-run")
    assert out.startswith("gossamer synthetic --nodes 25 --dim 50 --lr 0.0001 --beta 0.9 --sigma2 1.0 --zeta2")
    assert "--zeta2 0,25,50 --topology ring --rounds 20000 --seed 0 " in out
