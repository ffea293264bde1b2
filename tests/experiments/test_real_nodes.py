"""The same experiment on real processes: the simulator's figures, and the same bits after kill -9."""

import dataclasses
import gc
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gossamer import models, simulate, tasks
from gossamer.cli import main
from gossamer.cli.run import run as run_command
from gossamer.engine import DivergenceError
from gossamer.errors import GossamerError, InputError, PeerError
from gossamer.experiments import real_nodes
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.locks import claim
from gossamer.experiments.real_nodes import train_here
from gossamer.experiments.store import StoredRun
from gossamer.experiments.training import Execution, prepare, train
from gossamer.network import waiting
from tests.processes import nodes, run_nodes

EXPERIMENT = Experiment(
    nodes=2, partition="dirichlet:alpha=0.5,min_size=20", node_weight="size", clip=1.0, lr=0.05,
    schedule="cosine", rounds=49, batch_size=32, evaluations=12, weight_decay=0.05, decoupled=True,
)  # fmt: skip
TIMES = ("seconds", "samples_per_second")


def command(experiment: Experiment, out: Path) -> list[str]:
    """What `gossamer` is given to make the run."""
    file = out.with_suffix(".toml")
    file.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in experiment.to_dict().items()))
    return ["run", str(file), "--out", str(out)]


def untimed(run: StoredRun) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in run.rows]


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[StoredRun, str]:
    """EXPERIMENT on two processes, and what was printed."""
    place = tmp_path_factory.mktemp("real")
    logger = ["--logger", "tensorboard"] if find_spec("tensorboard") else []
    printed = run_nodes(2, place, main, [*command(EXPERIMENT, place / "run"), *logger])
    return StoredRun(place / "run"), printed[0]


@pytest.mark.timeout(400)
def test_processes_give_the_figures_of_the_simulator(real, tmp_path):
    run, printed = real
    assert "2 nodes (processes)" in printed
    simulated = train(EXPERIMENT, tmp_path / "simulated")
    assert run.about["experiment"] == simulated.about["experiment"]
    rounds = [row["round"] for row in simulated.rows]
    assert len({b - a for a, b in pairwise(rounds)}) > 1, "evaluations that do not divide the rounds"
    assert [row["round"] for row in run.rows] == rounds
    for ours, theirs in zip(untimed(run), untimed(simulated), strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert ours[key] == (value if value is None else pytest.approx(value, rel=1e-4, abs=1e-7)), key


@pytest.mark.timeout(400)
def test_local_steps_give_the_figures_of_the_simulator(tmp_path):
    changed = {"inner": "adamw:weight_decay=0.1", "every": 4, "decoupled": False, "lr": 0.003, "rounds": 22}
    experiment = dataclasses.replace(EXPERIMENT, **changed)
    run_nodes(2, tmp_path, main, command(experiment, tmp_path / "real"))
    simulated, found = train(experiment, tmp_path / "simulated"), StoredRun(tmp_path / "real")
    for ours, theirs in zip(untimed(found), untimed(simulated), strict=True):
        for key, value in theirs.items():
            assert ours[key] == (value if value is None else pytest.approx(value, rel=1e-3, abs=1e-6)), key


def test_one_node_writes_the_files_and_the_log(real):
    run, _ = real
    logs = run.directory / "tensorboard"
    assert {"done.json", "metrics.jsonl", "run.json"} == {p.name for p in run.directory.iterdir()} - {logs.name}
    if not find_spec("tensorboard"):
        pytest.skip("pip install 'gossamer[tensorboard]'")
    assert len(list(logs.iterdir())) == 1


@pytest.mark.timeout(400)
def test_a_killed_rank_is_restarted_and_the_run_ends_with_the_same_figures(real, tmp_path):
    words = command(EXPERIMENT, tmp_path / "killed")
    with nodes(2, tmp_path, main, words) as (survivor, victim):
        while len(StoredRun(tmp_path / "killed").rows) < 4:
            assert victim.is_alive()
            time.sleep(0.02)
        victim.kill()
    said = (tmp_path / "0.out").read_text()
    assert (survivor.exitcode, "Traceback" in said) == (2, False), said
    run_nodes(2, tmp_path, main, words)
    assert untimed(StoredRun(tmp_path / "killed")) == untimed(real[0])


def _diverge(out: Path) -> None:
    gc.disable()
    waiting._POLL = 0.0005  # sees every wait
    train_here(Experiment(nodes=2, partition="iid", rounds=30, lr=1e6), out)
    # Where there is no /proc, the names of threads are not known and nothing is found.
    left = [name for path in Path("/proc/self/task").glob("*/comm") if "gloo" in (name := path.read_text())]
    print("left:", left, flush=True)


def test_divergence_is_recorded_and_no_thread_of_the_network_is_left_that_could_abort_the_exit(tmp_path):
    printed = run_nodes(2, tmp_path, _diverge, tmp_path / "run")
    run = StoredRun(tmp_path / "run")
    assert run.status == "diverged"
    assert "the loss of node" in run.outcome["reason"]
    assert all(text.endswith("left: []\n") for text in printed), printed


@pytest.fixture
def _one_process(tmp_path, monkeypatch):
    """This process as the only one that torchrun started."""
    found = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    for name, value in found.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_one_process")
def test_a_wrong_number_of_processes_is_refused(tmp_path):
    with pytest.raises(InputError, match="2 nodes but torchrun started 1 processes"):
        train_here(Experiment(nodes=2, rounds=2, partition="iid"), tmp_path)


@pytest.mark.usefixtures("_one_process")
def test_the_timeout_and_what_to_do_with_nan_reach_the_optimizer(tmp_path, monkeypatch):
    seen = []
    made = real_nodes.optim.optimizer_of

    def noted(*arguments: object, **options: object) -> object:
        seen.append(options)
        return made(*arguments, **options)

    monkeypatch.setattr(real_nodes.optim, "optimizer_of", noted)
    experiment = Experiment(nodes=1, rounds=1, partition="iid", topology="complete", batch_size=32, nonfinite="skip")
    train_here(experiment, tmp_path / "run", Execution(timeout=12.5))
    assert [(options["timeout"], options["nonfinite"]) for options in seen] == [(12.5, "skip")]


@pytest.mark.usefixtures("_one_process")
def test_the_process_that_writes_claims_the_directory_for_all(tmp_path):
    experiment = Experiment(nodes=1, rounds=2, partition="iid", topology="complete", batch_size=32)
    with (
        claim(tmp_path, "run"),
        pytest.raises(InputError, match=rf"is being made by another process \({os.getpid()}\)"),
    ):
        train_here(experiment, tmp_path / "run")
    assert not StoredRun(tmp_path / "run").rows
    before = signal.getsignal(signal.SIGTERM)
    assert train_here(experiment, tmp_path / "run").status == "done"
    assert signal.getsignal(signal.SIGTERM) is before, "signals do what they did before the run"


def test_a_node_that_goes_away_during_an_evaluation_is_told_in_a_sentence(monkeypatch):
    def closed(*arguments: object, **options: object) -> None:
        raise RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1")

    experiment = Experiment(nodes=1, partition="iid", topology="complete")
    nodes, graph = prepare(experiment)
    here = real_nodes.NodeTraining(experiment, nodes, graph, torch.device("cpu"))
    monkeypatch.setattr(real_nodes.dist, "all_gather", closed)
    with pytest.raises(PeerError, match=r"went away during the exchange of figures.*Connection closed by peer"):
        here.gather(1.0)


@pytest.fixture
def here(monkeypatch) -> real_nodes.NodeTraining:
    """A node without others, whose figures are all there are."""
    experiment = Experiment(nodes=1, partition="iid", topology="complete", rounds=2, batch_size=32)

    def gathered(rows: list[torch.Tensor], mine: torch.Tensor, async_op: bool) -> None:
        rows[0].copy_(mine)

    monkeypatch.setattr(real_nodes.dist, "all_gather", gathered)
    return real_nodes.NodeTraining(experiment, *prepare(experiment), torch.device("cpu"))


def test_a_node_is_evaluated_on_the_part_of_the_simulator(here, monkeypatch, tmp_path):
    monkeypatch.setattr("gossamer.engine.schedule.SMALLEST_PART", 50)
    experiment = dataclasses.replace(here.experiment, rounds=40)
    node = real_nodes.NodeTraining(experiment, here.nodes, here.graph, torch.device("cpu"))
    first, *_, last = train(experiment, tmp_path).rows
    assert (first["test_samples"], last["test_samples"]) == (node.schedule.test_samples, 355)
    assert 50 <= first["test_samples"] < 355
    ours = node.measure(0)
    for key in ("test_samples", "accuracy", "averaged_accuracy"):
        assert ours[key] == pytest.approx(first[key]), key
    assert node.measure(40)["test_samples"] == 355


def test_a_loss_or_a_gradient_that_is_no_number_is_told_as_in_the_simulator(here, monkeypatch):
    here.advance(0)
    before = [p.detach().clone() for p in here.model.parameters()]
    with monkeypatch.context() as broken:
        broken.setattr(here, "_clip", lambda: next(here.model.parameters()).grad.fill_(math.nan))
        with pytest.raises(
            DivergenceError, match=r"the gradient of node 0 is nan in round 1 \(parameter group 0\); try"
        ):
            here.advance(1)
    here.optimizer.network.waiting.failure = None
    infinite = dataclasses.replace(here.task.loss, function=lambda output, targets: output.sum() * math.inf)
    monkeypatch.setattr(here, "task", dataclasses.replace(here.task, loss=infinite))
    with pytest.raises(DivergenceError, match=r"the loss of node 0 is (-inf|inf|nan) in round 1; try"):
        here.advance(1)
    assert all(torch.equal(a, b) for a, b in zip(before, here.model.parameters(), strict=True))


def broken(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that is no number for the batches that begin with an even digit."""
    loss = torch.nn.functional.cross_entropy(outputs, targets)
    return loss * math.nan if len(targets) == 32 and targets[0] % 2 == 0 else loss


@pytest.mark.parametrize("steps", [{}, {"inner": "adamw", "every": 2}], ids=["method", "inner optimizer"])
def test_what_is_not_finite_is_skipped_as_in_the_simulator(here, monkeypatch, steps):
    monkeypatch.setattr(tasks, "LOSSES", {**tasks.LOSSES, "broken": tasks.Loss("broken", broken)})
    experiment = dataclasses.replace(
        here.experiment, loss="broken", nonfinite="skip", weight_decay=0.1, rounds=8, **steps
    )
    node = real_nodes.NodeTraining(experiment, here.nodes, here.graph, torch.device("cpu"))
    for r in range(experiment.rounds):
        node.advance(r)
    run = simulate(
        models.SmallCNN, here.nodes, experiment.method, here.graph, lr=experiment.lr, rounds=8, batch_size=32,
        loss=broken, weight_decay=0.1, nonfinite="skip", **steps,
    )  # fmt: skip
    assert 0 < run.simulation.skipped[0] == node.optimizer.stats()["skipped"] < 8
    for ours, theirs in zip(node.model.parameters(), run.models[0].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_what_an_earlier_version_saved_is_taken(here):
    here.load_state_dict({**here.state_dict(), "lost": [3.0, math.inf]})
    here.advance(0)
    assert here.optimizer.round == 1, "it went on"


def _lose_a_node(out: Path) -> None:
    if os.environ["RANK"] == "1":
        advance = real_nodes.NodeTraining.advance
        real_nodes.NodeTraining.advance = lambda self, r: os._exit(0) if r == 3 else advance(self, r)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        main(["run", "--nodes", "3", "--partition", "iid", "--rounds", "9", "--timeout", "20", "--out", str(out)])
    except SystemExit as end:
        print("code", end.code, flush=True)


def test_a_sentence_of_a_run_names_who_speaks_and_comes_once(tmp_path):
    printed = run_nodes(3, tmp_path, _lose_a_node, tmp_path / "run")
    said = [line for text in printed for line in text.splitlines() if line.startswith("gossamer: ")]
    assert len(said) == 1, printed
    assert re.match("gossamer: node [02]: Node 1 closed the connection before round", said[0]), said
    assert [printed[k].endswith("code 2\n") for k in (0, 2)] == [True, True], printed


def test_a_sentence_comes_once_whoever_keeps_the_store(tmp_path):
    told = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "-m", "gossamer"]
    ended = subprocess.run(
        [*command, "run", "--nodes", "4", "--out", str(tmp_path / "run")], env=told, capture_output=True, text=True
    )
    assert ended.stderr.count("The experiment has 4 nodes but torchrun started 3 processes") == 1, ended.stderr


def test_neighbours_that_lose_a_node_in_different_rounds_say_so_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "0").mkdir()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "0" / "1" / "error.json"))
    monkeypatch.setenv("RANK", "1")
    voice = real_nodes.Voice()
    waits = [f"still waiting for node 2 to send the message of round {round}" for round in (5, 6)]
    ends = [f"Node 2 closed the connection before round {round} was complete" for round in (5, 6)]
    for sentence in waits:
        voice.emit(logging.makeLogRecord({"msg": sentence}))
    for sentence in ends:
        voice.say(sentence)
    assert capsys.readouterr().err.splitlines() == [f"gossamer: node 1: {told}" for told in (*waits, ends[0])]


def test_the_command_hands_everything_on(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="pip install 'gossamer[tensorboard]'")
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[Experiment, Path, Execution]] = []
    monkeypatch.setattr(real_nodes, "train_here", lambda *arguments: seen.append(arguments))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    run_command(device="cuda", workers=3, timeout=12.5, logger="tensorboard", data_dir=tmp_path)
    run_command(out=tmp_path / "here")
    (experiment, directory, execution), (_, out, usual) = seen
    assert directory == Path("runs") / f"{experiment.id}-processes"
    assert (execution.device, execution.workers, execution.data_dir) == ("cuda", 3, tmp_path)
    assert (execution.timeout, usual.timeout) == (12.5, waiting.TIMEOUT)
    # The usual one prints a line per evaluation; the logger comes on top of it.
    assert (len(execution.callbacks), len(usual.callbacks)) == (2, 1)
    assert (out, usual.device) == (tmp_path / "here", "cpu")


@pytest.mark.parametrize(
    ("execution", "sentence"),
    [(Execution(device="abacus"), "no device 'abacus'"), (Execution(workers=2), "no nodes for 2 workers to share")],
)
def test_a_node_refuses_what_it_cannot_do(tmp_path, execution, sentence):
    with pytest.raises(GossamerError, match=sentence):
        train_here(Experiment(), tmp_path, execution)
