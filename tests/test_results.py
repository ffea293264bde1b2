"""results/ holds what its runs say, and its commands make those runs."""

import itertools
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from gossamer._common.files import to_json
from gossamer.cli import main
from gossamer.cli.compare import PAPER_METHODS
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import read_grid
from gossamer.experiments.paper.recipes import PaperPlan, PlannedRun
from gossamer.experiments.store import StoredRun
from gossamer.experiments.sweep import run_sweep
from gossamer.experiments.synthetic import SyntheticConfig, run_synthetic
from tests.processes import run_nodes

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


def test_what_is_published_is_what_the_runs_say(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["results/publish.py", "--check"])
    monkeypatch.syspath_prepend(str(RESULTS))
    publish = runpy.run_path(str(RESULTS / "publish.py"))
    assert (publish["main"](), capsys.readouterr().err) == (0, "")


def test_every_run_is_whole_and_is_where_its_settings_say():
    finished = [StoredRun(path.parent) for path in sorted((RESULTS / "runs").glob("*/done.json"))]
    assert finished
    for run in finished:
        assert (run.experiment.id, run.experiment.cell) == (run.directory.name, run.cell)
        if run.status == "diverged":
            continue
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


PRIVATE = ITEMS["privacy"]


def test_every_cell_of_the_privacy_table_was_run():
    cells = {(r["dataset"], r["method"], r["epsilon"], r["seed"]) for r in PRIVATE["runs"]}
    axes = (("digits", "fashion-mnist"), ("momentum-tracking", "dsgdm"), (None, 8.0, 3.0, 1.0), (0, 1, 2))
    assert cells == set(itertools.product(*axes))
    for run in PRIVATE["runs"]:
        assert [site["site"] for site in run["sites"]] == [0, 1, 2, 3]
        for site in run["sites"]:
            assert PRIVATE["delta"] < 1 / site["examples"]
            assert (site["epsilon"] == 0) if run["epsilon"] is None else (0.98 * run["epsilon"] < site["epsilon"])
            assert site["epsilon"] <= (run["epsilon"] or 0)


@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")  # of a first guess that Opacus refines
@pytest.mark.parametrize(
    ("dataset", "epsilon"),
    [
        ("digits", 1.0),
        *(pytest.param(d, e, marks=pytest.mark.slow) for d in ("digits", "fashion-mnist") for e in (3.0, 8.0)),
    ],
)
def test_every_epsilon_of_the_privacy_table_is_that_of_opacus(dataset, epsilon):
    accountants = pytest.importorskip("opacus.accountants", reason="pip install -e '.[privacy]'")
    found = {
        (site["noise"], 1 / site["batches"], run["rounds"]): site["epsilon"]
        for run in PRIVATE["runs"]
        for site in run["sites"]
        if (run["dataset"], run["epsilon"]) == (dataset, epsilon)
    }
    for history, spent in found.items():
        accountant = accountants.PRVAccountant()
        accountant.history = [history]
        assert accountant.get_epsilon(PRIVATE["delta"]) == pytest.approx(spent, rel=1e-6)


@pytest.mark.slow
def test_the_privacy_table_comes_from_this_code(tmp_path):
    """One of its cells is made again."""
    pytest.importorskip("opacus", reason="pip install -e '.[privacy]'")
    run_nodes(4, tmp_path, _again, tmp_path)
    sites = json.loads((tmp_path / "sites.json").read_text())
    (cell,) = (
        r["sites"]
        for r in PRIVATE["runs"]
        if (r["dataset"], r["method"], r["epsilon"], r["seed"]) == ("digits", "momentum-tracking", 3.0, 0)
    )
    for now, then in zip(sites, cell, strict=True):
        assert now["noise"] == pytest.approx(then["noise"], rel=1e-6)
        assert now["accuracy"] == pytest.approx(then["accuracy"], abs=0.03)


def _again(out):
    sys.path.insert(0, str(ROOT / "examples"))
    import private_sites as example
    import torch.distributed as dist

    import gossamer as gs

    dist.init_process_group("gloo")
    settings = {**example.SETTINGS["digits"], "lr": example.STEP_SIZES["digits"][3.0]}
    told = example.train(gs.data.load("digits"), "momentum-tracking", 3.0, 0, noise_seed=0, **settings)
    sites = example.of_all_sites(told)
    if dist.get_rank() == 0:
        (out / "sites.json").write_text(json.dumps(sites))
    dist.destroy_process_group()


def test_the_frontier_is_measured_from_its_files(tmp_path, monkeypatch):
    """All of it, small: step sizes on the first seed, the best one on another, bytes, paired differences, a figure."""
    monkeypatch.syspath_prepend(str(RESULTS))
    import frontier

    comparison = frontier.COMPARISONS[0]
    few = ["momentum-tracking", "motef:compress=quantize:bits=4", "gradient-tracking"]
    text = (RESULTS / "frontier" / "sweep.toml").read_text()
    text = re.sub(r"(?s)method = \[.*?\n\]", f"method = {json.dumps(few)}", text)
    text = re.sub(
        r"(?s)\[\[override\]\]\nwhen = \{(method = \[?\"(led|beer|momentum)|partition = ).*?(\n\n|$)", "", text
    )
    changes = {"dataset": "digits", "model": "small-cnn", "partition": "k-class:k=4", "lr": [0.02, 0.01], "epochs": 1}
    for key, value in {**changes, "batch_size": 32, "evaluations": 1}.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {json.dumps(value)}", text)
    (tmp_path / "frontier").mkdir()
    (tmp_path / "frontier" / "sweep.toml").write_text(text)
    monkeypatch.setattr(frontier, "HERE", tmp_path)
    monkeypatch.setattr(frontier, "SEEDS", [1])
    runs = tmp_path / "runs"
    assert run_sweep(comparison.experiments("sweep.toml"), runs).done == 8
    assert comparison.write_seeds(runs) == []
    later = comparison.experiments("seeds.toml")
    assert [(e.seed, e.inner != "", e.every) for e in later] == [
        (1, False, 1),
        (1, False, 1),
        (1, True, 5),
        (1, True, 20),
    ]
    assert run_sweep(later, runs).done == 4
    told = comparison.measured(comparison.cells(runs))
    plain, four_bits, fifth, _ = sorted(told["cells"], key=lambda row: (few.index(row["method"]), row["every"]))
    assert all(row["seeds"] == 2 for row in told["cells"])
    assert (plain["share"], plain["difference"]) == (1, 0)
    assert four_bits["share"] == pytest.approx(0.13 + 0.05, abs=0.06)  # and the all-reduce of the first step
    assert fifth["share"] < 0.4
    assert four_bits["difference"] == pytest.approx(four_bits["mean"] - plain["mean"])
    comparison.draw(told, tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 10_000


def test_an_item_is_made_with_all_step_sizes_on_the_first_seed_and_the_best_on_the_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    import publish

    def lrs(seed):
        runs = [StoredRun(path.parent) for path in tmp_path.glob("*/done.json")]
        return sorted(r.experiment.lr for r in runs if r.experiment.seed == seed)

    class Item(publish.PaperItem):
        def plan(self):
            setting = {"dataset": "digits", "model": "small-cnn", "nodes": 4, "partition": "iid", "epochs": 1}
            grid = [(lr, seed) for lr in self.lrs for seed in self.seeds]
            some = [Experiment(**setting, method="dsgdm", lr=lr, seed=seed, batch_size=32) for lr, seed in grid]
            return None, PaperPlan([PlannedRun(e, e) for e in some], [])

    monkeypatch.setattr(publish, "RUNS", tmp_path)
    item = Item("some", "table2", "full", (0.05, 1e-7), (0, 1, 2), {})
    item.make({})
    assert (lrs(0), lrs(1), lrs(2)) == ([1e-7, 0.05], [0.05], [0.05])


def test_the_demo_uses_the_step_sizes_that_its_search_found_best():
    examples, cells = ROOT / "examples", json.loads((RESULTS / "demo" / "search.json").read_text())["cells"]
    demo = read_grid(examples / "demo.toml", method=PAPER_METHODS.split(",")).experiments
    search = read_grid(examples / "demo_search.toml").experiments
    assert not {e.seed for e in demo} & {e.seed for e in search}
    best = {}
    for cell in cells:
        setting = cell["experiment"]["method"], cell["experiment"]["partition"]
        scores = {c["lr"]: -1.0 if c["score"] is None else c["score"] for c in cell["candidates"]}
        assert set(scores) == {e.lr for e in search if (e.method, e.partition) == setting}
        assert scores[cell["lr"]] == max(scores.values())
        assert min(scores) < cell["lr"] < max(scores)
        best[setting] = cell["lr"]
    assert {(e.method, e.partition): e.lr for e in demo} == best


def test_the_published_curves_of_the_synthetic_experiment_come_from_this_code():
    """The first rounds of a short run are those of a long one."""
    published = ITEMS["synthetic"]
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in published["config"].items()}
    result = run_synthetic(SyntheticConfig(**{**given, "rounds": 200}))
    for ours, theirs in zip(json.loads(to_json(result))["cells"], published["cells"], strict=True):
        assert (ours["method"], ours["zeta2"]) == (theirs["method"], theirs["zeta2"])
        curve = dict(zip(ours["rounds"], ours["curve"], strict=True))
        for round_, value in theirs["curve"]:
            if round_ <= 200:
                assert curve[round_] == pytest.approx(value, rel=1e-3)
