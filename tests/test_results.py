"""results/ holds what its runs say, and its commands make those runs."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.cli import main
from gossamer.experiments.store import StoredRun

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
ITEMS = {path.parent.name: json.loads(path.read_text()) for path in RESULTS.glob("*/measured.json")}
WITH_RUNS = [name for name, told in ITEMS.items() if "commands" in told]


@pytest.fixture
def gossamer(capsys, monkeypatch):
    """The command in the project's root; what it prints."""
    monkeypatch.chdir(ROOT)

    def gossamer(command, *more):
        with pytest.raises(SystemExit) as exit_:
            main([*shlex.split(command)[1:], *more])
        out, err = capsys.readouterr()
        assert exit_.value.code == 0, err
        return out

    return gossamer


def test_what_is_published_is_what_the_runs_say():
    done = subprocess.run(
        [sys.executable, RESULTS / "publish.py", "--check"], capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_run_is_whole_and_is_where_its_settings_say():
    finished = [StoredRun(path.parent) for path in sorted((RESULTS / "runs").glob("*/done.json"))]
    assert finished
    for run in finished:
        assert (run.experiment.id, run.experiment.cell) == (run.directory.name, run.cell)
        assert (run.status, run.rows[-1]["epoch"]) == ("done", run.experiment.epochs), run.directory
        assert "validation_accuracy" in run.rows[-1], run.directory


@pytest.mark.parametrize("name", WITH_RUNS)
def test_the_commands_make_the_runs(gossamer, name):
    made = set()
    for command in ITEMS[name]["commands"]:
        told = json.loads(gossamer(command, "--dry-run", "--json"))
        made |= {entry["id"] for entry in (told["runs"] if isinstance(told, dict) else told)}
    behind = {run for cell in ITEMS[name]["cells"] for run in cell["runs"]}
    assert behind <= made


def test_a_command_makes_its_item_at_the_smallest_scale(gossamer, tmp_path):
    command, *_ = ITEMS["table8"]["commands"]
    words = command.replace("--scale quick", "--scale smoke").replace("results/runs", str(tmp_path / "runs"))
    words = words.replace(" k=10,4", "")  # there is one k at this scale
    gossamer(words, "--out", str(tmp_path / "out"), "--data-dir", str(tmp_path))
    told = json.loads((tmp_path / "out" / "measured.json").read_text())
    published = ITEMS["table8"]["panels"][0]
    assert [line["label"] for line in told["panels"][0]["methods"]] == [line["label"] for line in published["methods"]]
    assert all(line["mean"] > 10 for line in told["panels"][0]["methods"])


def test_the_synthetic_command_makes_its_levels(gossamer, tmp_path):
    published = ITEMS["synthetic"]
    gossamer(published["command"], "--scale", "smoke", "--out", str(tmp_path))
    told = json.loads((tmp_path / "measured.json").read_text())
    same = {**published["config"], "rounds": told["config"]["rounds"]}
    assert told["config"] == same
    for ours, theirs in zip(told["cells"], published["cells"], strict=True):
        assert (ours["method"], ours["zeta2"]) == (theirs["method"], theirs["zeta2"])
        curve = dict(zip(ours["rounds"], ours["curve"], strict=True))
        # The first rounds of a short run are those of a long one: the published curves come from this very command.
        for round_, value in theirs["curve"]:
            if round_ <= told["config"]["rounds"]:
                assert curve[round_] == pytest.approx(value, rel=1e-3)
