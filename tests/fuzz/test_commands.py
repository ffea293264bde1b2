"""Command lines that nobody should type: an answer or a sentence, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.cases import case, chunks, command

NUMBERS = (
    "0", "1", "2", "3", "-1", "1e30", "9" * 5000, "nan", "inf", "-inf", "0.5", "1e-300", "1e300", "", " ", "x", "1_0",
    "٣", "2e1", "True", "0x10", "99999999999999999999",
)  # fmt: skip
WORDS = (
    "", " ", ":", "=", ",", ",,,", "a" * 5000, "../" * 50, "/", ".", "..", "~", "-", "--", "-x", "\x1b[2J", "é",
    "\udcff", "%s", "{}", "ring", "ring:", "ring:n=3", "ring:weights=lazy", "grid:rows=2", "grid:rows=-2",
    "torus:rows=nan", "star", "chain", "hypercube", "complete", "erdos-renyi", "erdos-renyi:probability=2",
    "erdos-renyi:probability=nan", "small-world:degree=2,rewire=0.5", "random-regular:degree=3",
    "random-matchings:period=3", "balanced-tree:branching=0", "one-peer-exponential", "file:", "file:/",
    "file:/dev/null", "file:" + "a" * 5000, "matrix:/dev/null", "iid", "k-class:k=2", "k-class:k=0",
    "k-class:k=99999999999999999999", "dirichlet:alpha=0.1", "dirichlet:alpha=1e-300", "dirichlet:alpha=1e300",
    "dirichlet:alpha=nan", "shards:per_node=2", "shards:per_node=1e9", "lazy", "fastest", "uniform", "dsgd",
    "momentum-tracking", "momentum-tracking:beta=1", "momentum-tracking:beta=nan,init=zero", "abm:beta=1e-300",
    "gtadam", "relaysum", "digits", "svhn", "cosine", "constant", "step:at_epochs=1/2,factor=nan",
    "step:at_epochs=/,factor=1", "small-cnn", "none", "erasing", "size", "cpu", "cuda:7", "meta", "quantum", "k=4,10",
    "seed=0", "method=dsgd", "seed=", "=0", "dsgd,abm:beta=0.5", "0,25", "tensorboard", "nothing",
    "random:up=1,down=1", "random:up=0,down=nan", "0 leaves 1", "0 leaves 0; 0 joins 0", "9 leaves 9", "adamw",
    "sgd:momentum=0.9", "sgd:momentum=nan", "rmsprop:alpha=2", "cross-entropy", "mse", "bce", "token-cross-entropy",
    "accuracy", "perplexity", "f1", "loss", "common", "own", "stop", "skip", "25.6M", "1e400M", "100Mbit/s", "0bit/s",
    "0.4s", "-1ms",
)  # fmt: skip
PLACES = (
    "FILE",
    "SITES",
    "DIRECTORY",
    "nowhere",
    "nowhere/deep",
    "a" * 5000,
    "/dev/null",
    "/dev/full",
    "/proc/1",
    "x\udcff",
    "",
    ".",
)
COMMANDS = {
    ("show", "topology"): ("WORD", "--nodes NUMBER", "--weights WORD", "--seed NUMBER", "--json"),
    ("show", "partition"): ("WORD", "--nodes NUMBER", "--dataset WORD", "--seed NUMBER", "--data-dir PLACE", "--json"),
    ("show", "method"): ("WORD", "--load PLACE", "--json"),
    ("show", "run"): ("PLACE", "--json"),
    ("report",): ("PLACE", "-o PLACE", "--tables PLACE", "--title WORD"),
    ("export",): ("PLACE", "-o PLACE", "--curves"),
    ("data", "list"): ("--data-dir PLACE", "--json"),
    ("data", "verify"): ("WORD", "--data-dir PLACE"),
    ("sweep", "--dry-run"): ("PLACE", "--out PLACE", "--only WORD", "--jobs NUMBER", "--slurm-time NUMBER", "--json"),
    ("run", "--rounds", "1", "--nodes", "4", "--batch-size", "4"): (
        "--method WORD", "--partition WORD", "--topology WORD", "--weights WORD", "--lr NUMBER", "--schedule WORD",
        "--warm-up NUMBER", "--weight-decay NUMBER", "--clip NUMBER", "--augment WORD", "--node-weight WORD",
        "--evaluations NUMBER", "--seed NUMBER", "--out PLACE", "--data-dir PLACE", "--device WORD", "--logger WORD",
        "--load PLACE", "--json", "--workers NUMBER", "--churn WORD", "--timeout NUMBER", "--inner WORD",
        "--every NUMBER", "--loss WORD", "--metric WORD", "--evaluate WORD", "--nonfinite WORD",
    ),
    ("compare", "--rounds", "1", "--nodes", "4", "--batch-size", "4", "--methods", "dsgd"): (
        "PLACE", "--seeds WORD", "--lrs WORD", "--lr NUMBER", "--partition WORD", "--topology WORD", "--churn WORD",
        "--inner WORD", "--every NUMBER", "--loss WORD", "--metric WORD", "--evaluate WORD", "--nonfinite WORD",
        "--out PLACE", "--data-dir PLACE", "--load PLACE", "--json", "--workers NUMBER",
    ),
    ("plan",): (
        "--parameters WORD", "--sites NUMBER", "--link WORD", "--step WORD", "--method WORD", "--every NUMBER",
        "--topology WORD", "--load PLACE", "--json",
    ),
    ("links",): ("PLACE", "--out PLACE", "--mesh"),
    ("links", "SITES"): ("--out PLACE", "--mesh"),
    ("watch", "--once"): ("PLACE", "--html PLACE", "--every NUMBER"),
    ("doctor", "--network"): ("--data-dir PLACE", "--json"),
    ("synthetic", "--rounds", "4", "--dim", "3", "--nodes", "4"): (
        "--lr NUMBER", "--beta NUMBER", "--sigma2 NUMBER", "--zeta2 WORD", "--topology WORD", "--weights WORD",
        "--seed NUMBER", "--methods WORD", "--out PLACE", "--json PLACE",
    ),
    ("paper",): ("WORD", "--out PLACE"),
    ("completion",): ("--shell WORD",),
    (): ("WORD", "--version", "--help"),
}  # fmt: skip


@pytest.mark.parametrize("numbers", chunks(60, 2500))
def test_command_lines(numbers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gossamer"])
    # In an empty cache kernels are compiled for longer than all cases take.
    monkeypatch.setattr("gossamer.engine.gradients._kernels_can_run", lambda: False)
    for name in ("GOSSAMER_DATA", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    Path("FILE").write_text("nodes = 2\nrounds = 1\n")
    Path("SITES").write_text(
        'graph = "ring"' + "".join(f'\n[[site]]\nname = "{n}"\naddress = "{n}.org"' for n in "abc")
    )
    Path("DIRECTORY").mkdir()
    choices = {"NUMBER": NUMBERS, "WORD": WORDS, "PLACE": PLACES}
    for number in numbers:
        with case(number) as rng:
            start = rng.choice(list(COMMANDS))
            arguments = list(start)
            options = COMMANDS[start]
            for option in rng.sample(options, rng.randint(0, min(4, len(options)))):
                name, _, kind = option.rpartition(" ")
                # Now and then a value of the wrong kind.
                kind = rng.choice(list(choices)) if kind in choices and rng.random() < 0.1 else kind
                arguments += [name] * bool(name) + [rng.choice(choices.get(kind, (kind,)))]
            if rng.random() < 0.1:
                rng.shuffle(arguments)
            if {"get", "reproduce", "tables"} & set(arguments):
                continue  # neither the network nor hours of training
            if "watch" in arguments and arguments[:2] != ["watch", "--once"]:
                continue  # it would look again and again
            try:
                command(*arguments)
            except AssertionError as error:
                raise AssertionError(f"{arguments}: {error}") from error


REFUSED = {
    "a file as the run's directory": (
        ["run", "--rounds", "1", "--out", "file"],
        "file is a file, but a run is a directory",
    ),
    "a name that is no UTF-8": (["run", "--out", b"x\xff"], "is not text in UTF-8"),
    "a path that is too long": (["run", "--load", "a" * 5000 + ".py"], "File name too long"),
    "a directory of data that is too long": (
        ["data", "verify", "svhn", "--data-dir", "a" * 5000],
        "File name too long",
    ),
    "a number of 5,000 digits": (["run", "digits.toml"], "number of thousands of digits"),
    "2,000 brackets": (["run", "brackets.toml"], "brackets nested too deeply"),
    "a grid of a billion": (["sweep", "grid.toml"], "grid.toml: this grid has 1,002,001 points"),
    "a graph of a trillion edges": (["show", "topology", "complete", "--nodes", "1e6"], "499,999,500,000 edges"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_system_refuses_is_a_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("digits.toml").write_text(f"seed = {'9' * 5000}")
    Path("brackets.toml").write_text(f"seed = {'[' * 2000}")
    Path("grid.toml").write_text(f"seed = {list(range(1001))}\nlr = {[float(k) for k in range(1001)]}")
    arguments, sentence = REFUSED[name]
    code, _, told = command(*(os.fsdecode(argument) for argument in arguments))
    assert code == 2
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [("table2 >/dev/full", 2, "No space left on device"), ("table2 >&-", 0, ""), ("nowhere 2>/dev/full", 2, "")],
)
def test_output_that_cannot_be_written(redirection, code, told):
    """With a command that needs no torch, because each is a process of its own."""
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    line = f'"{sys.executable}" -m gossamer paper show {redirection}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
