"""`gossamer paper` as a user meets it."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from gossamer.cli import main
from gossamer.data.catalog import CATALOG


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A directory of its own on a machine without datasets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = CATALOG["fashion-mnist"].system_folder
    if folder is not None and folder.exists():
        pytest.skip("the system has a package with Fashion-MNIST")


class Outcome:
    """Exit code and output of a command run in this process."""

    def __init__(self, capsys, *arguments: str) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(["paper", *arguments])
        self.code = exit_.value.code
        self.out, self.err = capsys.readouterr()


def test_the_list_names_items_runs_and_whether_the_data_is_here(capsys):
    outcome = Outcome(capsys, "list")
    assert outcome.code == 0
    line = next(line for line in outcome.out.splitlines() if line.startswith("table2"))
    assert line.split()[-4:] == ["648", "72", "18", "missing"]
    assert "synthetic" in outcome.out


def test_the_list_as_json(capsys):
    entries = {e["item"]: e for e in json.loads(Outcome(capsys, "list", "--json").out)}
    assert len(entries) == 15
    assert entries["table8"] == {
        "item": "table8",
        "title": "Table 8: ABm and GTAdam, LeNet on CIFAR-10",
        "datasets": ["cifar-10"],
        "missing": ["cifar-10"],
        "runs": {"full": 54, "quick": 6, "smoke": 3},
    }


def test_show_prints_the_recipe(capsys):
    values = tomllib.loads(Outcome(capsys, "show", "table3").out)
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
def test_bad_input_gets_a_sentence(arguments, words, capsys):
    outcome = Outcome(capsys, *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.out == ""


def test_a_dry_run_makes_nothing(capsys, tmp_path):
    outcome = Outcome(capsys, "table3", "--scale", "full", "--dry-run", "--only", "k=2,method=dsgd,dsgdm", "seed=0")
    assert outcome.code == 0
    assert outcome.out.count("to make") == 2 * 2 * 5
    assert "Scale full: 20 runs" in outcome.err
    assert list(tmp_path.iterdir()) == []
    runs = json.loads(Outcome(capsys, "table8", "--dry-run", "--json", "--seeds", "7").out)["runs"]
    assert len(runs) == 6
    assert {r["experiment"]["seed"] for r in runs} == {7}


@pytest.mark.timeout(300)
def test_a_smoke_test_ends_with_the_comparison_and_says_that_digits_stand_in(capsys, monkeypatch, tmp_path):
    command = ["table8", "--scale", "smoke", "--only", "method=abm,gtadam"]
    monkeypatch.setattr(sys, "argv", ["gossamer", "paper", *command])
    out = tmp_path / "out" / "paper" / "table8"
    dry = json.loads(Outcome(capsys, *command, "--dry-run", "--json").out)
    blocked = out / "runs" / dry["runs"][0]["id"] / "checkpoints"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a directory belongs")
    failed = Outcome(capsys, *command)
    assert failed.code == 1
    assert "1 run failed" in failed.out
    assert "1 done, 1 failed" in failed.err
    blocked.unlink()

    done = Outcome(capsys, *command)
    assert done.code == 0, done.err
    assert "2 done (1 of them before)" in done.err
    assert "k = 4 (digits in place of cifar-10)" in done.out
    assert "note: Not on this machine: cifar-10" in done.out
    assert "note: Not on this machine: cifar-10" in done.err
    assert "71.1 ± 0.20" not in done.out
    assert "\nno comparison: digits stand in\n" in done.out
    assert "ranking" not in done.out
    assert done.out.count("No comparison: digits stand in.") == 1
    assert "warning: everywhere: only one step size was tried (0.02)" in done.out
    page = (out / "report.html").read_text()
    assert "digits in place of cifar-10" in page[: page.index("</title>")]
    assert "no comparison: digits stand in" in page
    assert "71.1 ± 0.20" not in page
    measured = json.loads((out / "measured.json").read_text())
    assert measured["scale"] == "smoke"
    assert [m["method"] for m in measured["panels"][0]["methods"]] == ["abm", "gtadam"]
    assert len(measured["cells"]) == len(list((out / "runs").glob("*/run.json"))) == 2
    first = measured["panels"][0]["methods"][0]
    assert first["mean"] > 0
    assert (first["paper_mean"], first["paper_std"], first["difference"]) == (None, None, None)
    assert measured["panels"][0]["ranking"]["sentence"] == "no comparison: digits stand in"
    assert measured["commands"] == ["gossamer paper table8 --scale smoke --only method=abm,gtadam"]
    assert (measured["runs"], measured["epochs"]) == (2, None)


@pytest.mark.timeout(300)
def test_what_is_there_is_used_and_a_figure_is_drawn(capsys, tmp_path):
    share = ["--scale", "smoke", "--runs", "shared", "--only", "method=dsgd"]
    assert Outcome(capsys, "figure5", *share).code == 0
    assert list((tmp_path / "out" / "paper" / "figure5" / "figures").iterdir())
    again = Outcome(capsys, "table2", *share, "--only", "dataset=cifar-10", "--existing", "--json")
    assert again.code == 0
    measured = json.loads(again.out)
    assert [p["title"] for p in measured["panels"]] == ["cifar-10, k = 4 (digits in place of cifar-10)"]
    assert measured["panels"][0]["methods"][0]["seeds"] == 1
    (made,) = (tmp_path / "shared").glob("*/run.json")
    made.write_text("{")
    damaged = Outcome(capsys, "table2", *share, "--only", "dataset=cifar-10", "--existing")
    assert damaged.code == 2
    assert "None of the runs of table2 is in shared yet." in damaged.err


@pytest.mark.timeout(300)
def test_the_synthetic_experiment_prints_nothing_but_json_if_asked(capsys, monkeypatch, tmp_path):
    # The figures take most of the time, and the tests of gossamer synthetic look at them.
    monkeypatch.setattr("gossamer.report.synthetic.write_report", lambda result, out, command: out / "report.html")
    outcome = Outcome(capsys, "synthetic", "--scale", "smoke", "--json")
    assert outcome.code == 0
    out = tmp_path / "out" / "paper" / "synthetic"
    assert f"report: {Path('out/paper/synthetic/report.html')}" in outcome.err
    assert json.loads(outcome.out) == json.loads((out / "measured.json").read_text())
    assert "last quarter of 200 rounds" in " ".join(outcome.err.split())


def test_the_synthetic_experiment_at_full_scale_is_the_papers(capsys):
    outcome = Outcome(capsys, "synthetic", "--dry-run")
    assert outcome.out.startswith("gossamer synthetic --nodes 25 --dim 50 --lr 0.0001 --beta 0.9 --sigma2 1.0 --zeta2")
    assert "--zeta2 0,25,50 --topology ring --rounds 20000 --seed 0 " in outcome.out
