"""`gossamer run` and `gossamer compare`."""

import json
import os
import re
import sys
from dataclasses import replace

import pytest

from gossamer import methods, tasks
from gossamer.cli.output import print_run, print_table
from gossamer.errors import GossamerError
from gossamer.experiments.experiment import ADDED, Experiment
from gossamer.experiments.locks import claim
from gossamer.experiments.store import StoredRun, find_runs, refuse_another
from gossamer.experiments.training import train

TINY = ["--nodes", "4", "--partition", "k-class:k=5", "--rounds", "4", "--batch-size", "16", "--evaluations", "2"]


@pytest.fixture
def built_in(monkeypatch):
    """No method is known but those of the package, as in a process of its own."""
    known = {name: methods.find(name) for name in methods.BUILT_IN}
    monkeypatch.setattr(methods.Method, "_registry", known)


def test_run_takes_a_file_with_flags_on_top(gossamer, tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text('method = "dsgdm:beta=0.5"\nnodes = 4\nrounds = 4\nbatch_size = 16\nlr = 0.2\nevaluations = 2\n')
    out, _ = gossamer("run", file, "--lr", "0.02", "--out", tmp_path / "run")
    assert "DSGDm (beta=0.5) on digits, 4 nodes (simulated)" in out
    experiment = StoredRun(tmp_path / "run").experiment
    assert (experiment.lr, experiment.rounds, experiment.method) == (0.02, 4, "dsgdm:beta=0.5")
    out, _ = gossamer("run", file, "--lr", "0.02", "--out", tmp_path / "run", "--json")
    assert json.loads(out)["outcome"]["status"] == "done"


BROKEN = """
import gossamer as gs
from torch.nn import functional

def broken(outputs, targets):
    loss = functional.cross_entropy(outputs, targets)
    return loss * float("nan") if len(targets) == 16 and targets[0] % 2 == 0 else loss

gs.tasks.register(gs.Loss("broken", broken))
"""


def test_what_is_not_finite_is_skipped_if_the_file_or_the_command_line_says_so(gossamer, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "LOSSES", dict(tasks.LOSSES))
    loss, file = tmp_path / "broken.py", tmp_path / "experiment.toml"
    loss.write_text(BROKEN)
    shared = ["run", *TINY, "--load", loss, "--loss", "broken"]
    gossamer(*shared, "--out", tmp_path / "stopped")
    assert StoredRun(tmp_path / "stopped").status == "diverged"
    gossamer(*shared, "--nonfinite", "skip", "--out", tmp_path / "skipped")
    file.write_text('nonfinite = "skip"\n')
    gossamer("run", file, *shared[1:], "--out", tmp_path / "file")
    for name in ("skipped", "file"):
        run = StoredRun(tmp_path / name)
        assert (run.status, run.experiment.nonfinite) == ("done", "skip")
    _, err = gossamer(*shared, "--out", tmp_path / "skipped", code=2)
    assert "its nonfinite is skip, this one's is stop" in err


def test_a_directory_of_another_run_is_refused(gossamer, tmp_path):
    gossamer("run", *TINY, "--out", tmp_path / "run")
    _, err = gossamer("run", *TINY, "--lr", "0.5", "--out", tmp_path / "run", code=2)
    assert "holds another run: its lr is 0.01, this one's is 0.5" in err
    _, err = gossamer("run", *TINY, "--model", "vgg-11", "--out", tmp_path / "run", code=2)
    assert "holds another run: its model is small-cnn, this one's is vgg-11" in err


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is done."""
    return train(Experiment(nodes=3, rounds=1, batch_size=16, evaluations=1), tmp_path_factory.mktemp("finished"))


def test_a_model_that_is_named_in_one_run_and_meant_in_the_other_is_no_difference(finished):
    with pytest.raises(GossamerError, match="its network is simulated, this one's is processes"):
        refuse_another(finished.directory, replace(finished.experiment, model="small-cnn"), "processes")


def test_a_setting_that_a_stored_run_lacks_is_said_to_be_missing(finished, tmp_path):
    settings = {key: value for key, value in finished.about["experiment"].items() if key != "clip"}
    about = {**finished.about, "id": "of an earlier version", "experiment": settings}
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(GossamerError, match=r"its clip is not set, this one's is 1\.0"):
        refuse_another(tmp_path, replace(finished.experiment, clip=1.0), "simulated")


@pytest.mark.parametrize("added", ADDED)
def test_a_setting_that_older_versions_did_not_know_was_as_it_is_by_default(finished, tmp_path, added):
    settings = {key: value for key, value in finished.about["experiment"].items() if key != added}
    about = {**finished.about, "id": "of an earlier version", "experiment": settings}
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(GossamerError, match=r"its lr is 0\.01, this one's is 0\.5"):
        refuse_another(tmp_path, replace(finished.experiment, lr=0.5), "simulated")
    with pytest.raises(GossamerError, match="a run of the same settings, but its method"):
        refuse_another(tmp_path, finished.experiment, "simulated")


def test_run_goes_by_the_name_of_its_settings(gossamer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gossamer("run", *TINY)
    (run,) = find_runs("runs")
    assert run.directory.name == run.experiment.id


def test_compare_ranks_methods_by_their_best_step_size_and_writes_the_report(gossamer, tmp_path):
    arguments = ["--methods", "dsgdm,momentum-tracking", "--seeds", "0,1", "--lrs", "0.05,0.1", "--out", tmp_path]
    out, _ = gossamer("compare", *TINY, *arguments)
    assert "Momentum Tracking" in out
    assert "±" in out
    assert len(find_runs(tmp_path / "runs")) == 8
    assert "<html" in (tmp_path / "report.html").read_text()
    out, _ = gossamer("compare", *TINY, *arguments, "--json")
    ranking = json.loads(out)["ranking"]
    assert {cell["seeds"] for cell in ranking} == {2}
    assert ranking[0]["accuracy"] >= ranking[1]["accuracy"]


def test_methods_of_ones_own_are_loaded_from_a_file(gossamer, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from dataclasses import dataclass\nimport gossamer as gs\n\n\n@dataclass(frozen=True, eq=False)\n"
        'class Own(gs.Method):\n    name = "own-sign"\n    facts = gs.Facts(title="Own Sign", sends=1)\n\n'
        "    def step(self, state, x, grad, lr, net, round):\n"
        "        net.mix(x - lr * grad.sign(), round=round, out=(x,)).wait()\n"
    )
    arguments = ["--methods", "own-sign,dsgd", "--lr", "0.001", "--load", own, "--out", tmp_path / "out"]
    out, _ = gossamer("compare", *TINY, *arguments)
    assert "Own Sign" in out
    assert "Own Sign" in (tmp_path / "out" / "report.html").read_text()


def test_compare_trains_an_edited_method_again_and_says_so(gossamer, caplog, tmp_path):
    own = tmp_path / "own_edited.py"
    text = (
        "import gossamer as gs\n\n\nclass Own(gs.Method):\n"
        '    name = "own-edited"\n    facts = gs.Facts(title="Own Edited", sends=0)\n\n'
        "    def step(self, state, x, grad, lr, net, round):\n        x.sub_(grad, alpha=lr)\n"
    )
    arguments = ["compare", *TINY, "--methods", "own-edited,dsgd", "--load", own, "--out", tmp_path / "out", "--json"]
    rankings = []
    for source in (text, text, text.replace("alpha=lr", "alpha=-lr")):
        own.write_text(source)
        out, _ = gossamer(*arguments)
        rankings.append(json.loads(out)["ranking"])
    assert rankings[0] == rankings[1] != rankings[2]
    assert len(find_runs(tmp_path / "out")) == 2
    assert caplog.messages == ["1 run was made with another version of your files and will be made again."]


def test_what_no_run_of_a_comparison_can_do_ends_with_a_sentence(gossamer, tmp_path):
    arguments = ["--methods", "dsgd,dsgdm", "--model", "vgg-11", "--out", tmp_path]
    out, err = gossamer("compare", *TINY, *arguments, code=2)
    assert (out, len(err.splitlines())) == ("", 1)
    assert not (tmp_path / "report.html").exists()


def test_a_method_of_ones_own_that_fails_does_not_stop_the_others(gossamer, tmp_path):
    own = tmp_path / "own_broken.py"
    own.write_text(
        "from dataclasses import dataclass\nimport gossamer as gs\n\n\n@dataclass(frozen=True, eq=False)\n"
        'class Own(gs.Method):\n    name = "own-broken"\n    facts = gs.Facts(title="Own Broken", sends=1)\n\n'
        "    def step(self, state, x, grad, lr, net, round):\n        x.subtract_(grad.sing())\n"
    )
    arguments = ["--methods", "own-broken,dsgd", "--load", own, "--out", tmp_path / "out"]
    out, _ = gossamer("compare", *TINY, *arguments, code=1)
    assert "has no attribute 'sing' (own_broken.py, line 11)" in out
    assert "DSGD" in out
    assert (tmp_path / "out" / "report.html").exists()
    gossamer("compare", *TINY, *arguments, "--json", code=1)
    (tmp_path / "nonsense.py").write_text("import gossamer\nimport nothing_of_that_name\n")
    _, err = gossamer("run", "--load", tmp_path / "nonsense.py", code=2)
    assert "nonsense.py cannot be loaded: ModuleNotFoundError" in err


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\n", "defines no method with a name; give a class"),
        ("class A(gs.Method):\n    facts = gs.Facts(title='A')\n", "defines no method with a name; give a class"),
        ("class A(gs.Method):\n    name = 'a-m'\n", ", line 2: The method 'a-m' declares no facts; give the class A"),
        (
            "class A(gs.Method):\n    name = 'a-m'\n    facts = gs.Facts(title='A')\n    beta: float = 0.9\n",
            "A annotates 'beta' but is no dataclass, so 'beta' is no hyper-parameter and cannot be set; write @",
        ),
    ],
)
def test_a_file_whose_method_cannot_be_used_gets_a_sentence(gossamer, tmp_path, built_in, source, sentence):
    own = tmp_path / "own_mistaken.py"
    own.write_text(f"import gossamer as gs\n{source}")
    out, err = gossamer("compare", "--methods", "a-m,dsgd", "--load", own, code=2)
    assert out == ""
    assert sentence in err
    assert "GossamerError" not in err
    assert "contract.py" not in err
    assert err.endswith(".\n")
    assert not err.endswith("..\n")


def test_a_method_that_nobody_knows_may_be_in_a_file(gossamer, built_in):
    _, err = gossamer("compare", "--methods", "signum,dsgd", code=2)
    assert err.endswith("A method of your own is known once its file is imported, or given to --load.\n")


def test_a_damaged_run_is_left_out_and_made_again(gossamer, tmp_path):
    arguments = ["compare", *TINY, "--methods", "dsgd,dsgdm", "--out", tmp_path]
    gossamer(*arguments)
    first, _ = find_runs(tmp_path)
    (first.directory / "run.json").write_text("[]")
    gossamer("report", tmp_path / "runs", "-o", tmp_path / "half.html")
    assert len(find_runs(tmp_path)) == 1
    (first.directory / "done.json").unlink()
    gossamer(*arguments)
    assert len(find_runs(tmp_path)) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--method", "momentum"], "did you mean 'momentum-tracking'"),
        (["run", "--nodes", "many"], "--nodes needs a whole number, not 'many'"),
        (["run", "--lr", "-1"], "lr must be a finite number of at least 0"),
        (["run", "nowhere.toml"], "There is no file nowhere.toml"),
        (["run", "--logger", "tensorbord"], "did you mean 'tensorboard'"),
        (["run", "--load", "nowhere.py"], "There is no file nowhere.py to load"),
        (["compare", "--methods", "dsgd,relaysum"], "RelaySum needs a tree"),
        (["compare", "--method", "dsgd"], "compare takes several methods: write --methods"),
        (["run", "--seed", "99999999999999999999"], "seed must be at most 4,611,686,018,427,387,903"),
        (["compare", "--lr", "0.1", "--lrs", "0.1,0.2"], "--lr and --lrs mean the same; give only one"),
        (["compare", "--seeds", "one"], "seeds must be whole numbers separated by commas, not 'one'"),
        (["compare", "--lrs", "0.1,x"], "lrs must be numbers separated by commas"),
        (["compare", "--methods", ""], "method is an empty list"),
        (["run", "--rounds", "5", "--epochs", "3"], "--rounds and --epochs both say how long to train; give one"),
        (["compare", "--rounds", "5", "--epochs", "3"], "--rounds and --epochs both say how long to train; give one"),
    ],
)
def test_bad_input_ends_with_a_sentence_and_code_2(gossamer, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    _, err = gossamer(*arguments, code=2)
    assert words in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("names", ["dsgd,relaysum", "dsgd,dsgdx"])
def test_compare_has_no_overrides_to_advise(gossamer, names):
    _, err = gossamer("compare", "--methods", names, code=2)
    assert "override" not in err


def test_parameters_after_a_comma_belong_to_the_method_before(gossamer, tmp_path):
    arguments = ["--methods", "momentum-tracking:beta=0.5,init=zero, dsgd,dsgdm:beta=0.5", "--out", tmp_path]
    out, _ = gossamer("compare", *TINY, *arguments)
    assert "Momentum Tracking (beta=0.5, init=zero)" in out
    assert "were finished before" not in out
    out, _ = gossamer("compare", *TINY, *arguments)
    assert f"runs: {tmp_path / 'runs'} (3 of 3 were finished before)" in out


def test_epochs_take_the_place_of_the_rounds_of_a_file(gossamer, tmp_path):
    (tmp_path / "e.toml").write_text('rounds = 50\nnodes = 2\npartition = "iid"\nevaluations = 1\n')
    gossamer("run", tmp_path / "e.toml", "--epochs", "0.1", "--out", tmp_path / "run")
    experiment = StoredRun(tmp_path / "run").experiment
    assert (experiment.rounds, experiment.epochs) == (0, 0.1)


def test_compare_prints_the_description_of_its_file(gossamer, tmp_path):
    (tmp_path / "grid.toml").write_text('description = "Step sizes were searched beforehand."\n')
    arguments = [*TINY, "--methods", "dsgd,dsgdm", "--out", tmp_path / "out"]
    out, _ = gossamer("compare", tmp_path / "grid.toml", *arguments)
    assert "\nStep sizes were searched beforehand.\nreport: " in out
    out, _ = gossamer("compare", *arguments)
    assert "searched" not in out


def test_compare_does_not_offer_what_it_refuses(gossamer):
    out, _ = gossamer("compare", "--help")
    assert "--methods " in out
    assert "--nodes " in out
    assert "--method " not in out
    out, _ = gossamer("run", "--help")
    assert "--method " in out


def test_without_a_terminal_every_run_that_ends_gets_a_line(gossamer, tmp_path, monkeypatch):
    monkeypatch.setattr("gossamer.cli.progress.GRACE_PERIOD", 0.0)
    arguments = ["compare", *TINY, "--methods", "dsgd,dsgdm", "--out", tmp_path]
    _, err = gossamer(*arguments, "--seeds", "0")
    assert re.fullmatch(r"1 of 2: DSGD: [0-9.]+ % in [0-9.]+ s\n2 of 2: DSGDm: [0-9.]+ % in [0-9.]+ s\n", err)
    _, err = gossamer(*arguments, "--seeds", "0,1", "--json")
    assert [line.partition(":")[0] for line in err.splitlines()] == ["3 of 4", "4 of 4"]
    assert "DSGDm, seed 1: " in err
    monkeypatch.setattr("gossamer.cli.progress.GRACE_PERIOD", 1e6)
    _, err = gossamer(*arguments, "--seeds", "2")
    assert err == ""


def test_a_long_sweep_without_a_terminal_tells_how_far_it_is(gossamer, tmp_path, monkeypatch):
    monkeypatch.setattr("gossamer.cli.progress.GRACE_PERIOD", 0.0)
    monkeypatch.setattr("gossamer.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("gossamer._common.formatting.SECONDS_BETWEEN_LINES", 0.0)
    _, err = gossamer("compare", *TINY, "--methods", "dsgd,dsgdm", "--out", tmp_path)
    assert "0 of 2 runs\n" in err
    assert re.search(r"^DSGD: 25%, accuracy [\d.]+  loss [\d.]+, about [\d.]+ s left$", err, re.MULTILINE) or (
        re.search(r"^DSGD: 50%, accuracy", err, re.MULTILINE)
    )


def test_a_run_that_another_process_makes_is_refused(gossamer, tmp_path):
    with claim(tmp_path, "mine"):
        _, err = gossamer("run", *TINY, "--out", tmp_path / "mine", code=2)
    assert f"mine is being made by another process ({os.getpid()}); wait for it" in err
    assert not (tmp_path / "mine").exists()
    gossamer("run", *TINY, "--out", tmp_path / "mine")


def test_json_has_no_word_for_what_is_no_number(gossamer, tmp_path):
    gossamer("run", *TINY, "--lr", "1e18", "--method", "dsgd", "--out", tmp_path / "run")
    out, _ = gossamer("show", "run", tmp_path / "run", "--json")
    for text in (out, *(tmp_path / "run" / "metrics.jsonl").read_text().splitlines()):
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert json.loads(out)["outcome"]["status"] == "diverged"


def test_names_are_not_taken_for_markup_and_piped_tables_are_not_cut(capsys):
    print_table(["method [x]", "figure"], [["Sign [/ours]", "1"], ["y" * 200, "2"]])
    out = capsys.readouterr().out
    assert "method [x]" in out
    assert "Sign [/ours]" in out
    assert "y" * 200 in out


@pytest.mark.parametrize(
    ("columns", "lines"), [(120, 2), (80, 3), (60, 7)], ids=["as it is", "heads in two lines", "a line for each figure"]
)
def test_the_figures_of_a_run_are_not_cut_on_a_narrow_terminal(capsys, finished, monkeypatch, columns, lines):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_run(finished)
    _, *table, direction, _ = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    assert len(table) == lines
    assert direction == "accuracy: higher is better"
    assert max(map(len, table)) <= columns
    words = " ".join(table).split()
    assert "…" not in "".join(words)
    for word in ("round", "accuracy", "worst", "best", "averaged", "model", "validation", "consensus", "distance"):
        assert word in words


def test_without_a_terminal_the_figures_of_a_run_are_one_line(capsys, finished, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_run(finished)
    head = capsys.readouterr().out.splitlines()[1]
    assert head == "round  accuracy  worst node  best node  averaged model  validation  consensus distance"


def test_without_a_terminal_every_evaluation_of_a_run_gets_a_line(gossamer, tmp_path, monkeypatch):
    monkeypatch.setattr("gossamer.cli.progress.GRACE_PERIOD", 0.0)
    _, err = gossamer("run", *TINY, "--out", tmp_path / "run")
    lines = err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"round {r} of 4" for r in (0, 2, 4)]
    figures = r"accuracy [\d.]+ % \(worst node [\d.]+ %\) on 355 test samples, train loss [\d.]+; about [\d.]+ s left$"
    assert re.search(figures, lines[1])
    assert "left" not in lines[0] + lines[-1]


def test_a_live_table_shows_every_experiment(capsys):
    from gossamer.cli.progress import live_table
    from gossamer.experiments.experiment import Experiment

    experiments = [Experiment(method="dsgdm"), Experiment()]
    row = {"epoch": 1.5, "accuracy": 0.5, "accuracy_min": 0.25, "loss": 1.0, "consensus_distance": 0.1}
    with live_table(experiments, shown=True) as watch:
        watch(experiments[1], row)
    shown = capsys.readouterr().err
    assert "DSGDm" in shown
    assert "50.0" in shown
