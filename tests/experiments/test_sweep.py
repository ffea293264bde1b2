"""A sweep makes each run exactly once, whatever fails, stops or runs beside it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from gossamer import GossamerError
from gossamer._common.files import cannot_write
from gossamer.cli import main
from gossamer.errors import DiskError
from gossamer.experiments import training
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import Grid, read_grid
from gossamer.experiments.job import WorkPlan, mark_failed, work
from gossamer.experiments.locks import SWEEP, claim, holder
from gossamer.experiments.store import StoredRun
from gossamer.experiments.sweep import SweepOutcome, _ProgressReporter, run_sweep
from gossamer.experiments.training import train
from gossamer.experiments.user_files import load_python
from tests.processes import start

TINY = {"rounds": 2, "batch_size": 16, "evaluations": 1, "nodes": 2, "partition": "k-class:k=5", "lr": 0.05}

# Loaded by every job: notes each run that is begun and offers methods that go wrong.
WATCHED = """
import os, signal, time
import gossamer.experiments.training as training
from gossamer.methods import DSGD, Facts

real = training.train

def train(experiment, directory, execution):
    with open({log!r}, "a") as file:
        file.write(experiment.id + chr(10))
    return real(experiment, directory, execution)

training.train = train

def method(step):
    title = step.__name__.capitalize()
    facts = Facts(title=title, sends=1)
    return type(title, (DSGD,), dict(name=step.__name__, facts=facts, step=step, __module__=__name__))

@method
def broken(self, *arguments):
    raise RuntimeError("it broke")

@method
def deadly(self, *arguments):
    os.kill(os.getpid(), signal.SIGKILL)

@method
def slow(self, *arguments):
    time.sleep(0.05)
    DSGD.step(self, *arguments)

@method
def interrupted(self, *arguments):
    DSGD.step(self, *arguments)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture(autouse=True)
def _no_kernels(monkeypatch):
    """Jobs are processes of their own, which would load them for a few rounds."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")


@pytest.fixture
def watched(tmp_path, monkeypatch, _own_methods):
    """A Python file to load, here or in other processes, and the runs that have been begun since."""
    monkeypatch.setattr(training, "train", training.train)  # what the file replaces is put back
    log = tmp_path / "begun.txt"
    log.touch()
    path = tmp_path / f"watched_{tmp_path.name}.py"
    path.write_text(WATCHED.format(log=str(log)))
    return path, lambda: log.read_text().split()


def grid(**axes):
    return Grid.from_dict({**TINY, **axes}).experiments


def toml(path, **axes):
    values = {**TINY, **axes}
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return path


def finished(directory):
    return {path.parent.name: path.stat().st_mtime_ns for path in directory.glob("*/done.json")}


def test_the_time_left_is_told_while_runs_are_left(tmp_path):
    experiments, told = grid(seed=[0, 1]), []
    reporter = _ProgressReporter(tmp_path, experiments, 0, lambda *words: told.append(words))
    for experiment in experiments:
        reporter.look()
        train(experiment, tmp_path / experiment.id)
    reporter.look()
    assert told[0] == (0.0, "0 of 2 runs")
    assert told[1][0] == 0.5
    assert told[1][1].startswith("1 of 2 runs, ")
    assert told[1][1].endswith(" left")
    assert told[2] == (1.0, "2 of 2 runs")


def test_every_run_is_made_once_and_never_again(tmp_path):
    experiments = grid(method=["dsgd", "momentum-tracking"], seed=[0, 1])
    told = []
    outcome = run_sweep(experiments, tmp_path / "runs", on_progress=lambda *words: told.append(words))
    assert (outcome.done, outcome.diverged, outcome.failed, outcome.unfinished, outcome.skipped) == (4, 0, 0, 0, 0)
    assert outcome.sentence.startswith("4 done in ")
    assert told[0] == (0.0, "0 of 4 runs")
    assert told[-1] == (1.0, "4 of 4 runs")
    assert all("of 4 runs" in words for _, words in told)
    before = finished(tmp_path / "runs")
    assert sorted(before) == sorted(e.id for e in experiments)
    again = run_sweep([*experiments, *grid(seed=[7])], tmp_path / "runs")
    assert (again.done, again.skipped) == (5, 4)
    after = finished(tmp_path / "runs")
    assert {name: after[name] for name in before} == before
    assert not list((tmp_path / "runs" / ".claims").iterdir())


def test_failed_and_diverged_runs_are_recorded_and_do_not_stop_the_others(tmp_path):
    experiments = [
        Experiment(**{**TINY, "lr": 1e9, "rounds": 30}),
        Experiment(**{**TINY, "batch_size": 100_000}),
        Experiment(**TINY),
    ]
    directory = tmp_path / "runs"
    data = directory / experiments[1].id
    data.mkdir(parents=True)
    (data / "checkpoints").write_text("a file where a directory belongs")
    outcome = run_sweep(experiments, directory)
    assert (outcome.done, outcome.diverged, outcome.failed) == (1, 1, 1)
    assert " of node " in outcome.reasons[experiments[0].id]
    assert StoredRun(data).status == "failed"
    assert outcome.reasons[experiments[1].id] == StoredRun(data).outcome["reason"]
    assert "checkpoints" in StoredRun(data).outcome["traceback"]
    (data / "checkpoints").unlink()
    again = run_sweep(experiments, directory)
    assert (again.done, again.diverged, again.failed, again.skipped) == (2, 1, 0, 2)


@pytest.mark.timeout(400)
def test_jobs_that_fail_or_are_killed_cost_one_run_each(tmp_path, watched, gossamer):
    path, begun = watched
    file = toml(tmp_path / "g.toml", method=["broken", "deadly", "dsgd"], seed=[0, 1])
    arguments = [file, "--out", tmp_path / "runs", "--jobs", 2, "--load", path, "--only", "seed=0", "--json"]
    result = json.loads(gossamer("sweep", *arguments, code=1)[0])
    assert (result["done"], result["failed"]) == (1, 2)
    broken, killed = sorted(result["reasons"].values())
    assert broken.startswith("RuntimeError: it broke (watched_")
    assert "was ended by SIGKILL; memory may have run out" in killed
    assert len(begun()) == len(set(begun())) == 3
    assert {c["label"]: c["seeds"] for c in result["cells"]} == {"Broken": 0, "Deadly": 0, "DSGD": 1}


@pytest.mark.timeout(400)
def test_a_sweep_killed_half_way_finishes_with_each_run_done_once(tmp_path, watched):
    path, begun = watched
    file = toml(tmp_path / "g.toml", method="slow", seed=list(range(5)), rounds=10)
    directory = tmp_path / "runs"
    command = ["sweep", str(file), "--out", str(directory), "--jobs", "2", "--load", str(path)]
    os.mkfifo(tmp_path / "printed")
    printed = os.open(tmp_path / "printed", os.O_RDONLY | os.O_NONBLOCK)
    process = start(tmp_path / "printed", main, command, NUMBA_DISABLE_JIT=1)
    while len(finished(directory)) < 2:
        assert process.is_alive()
        time.sleep(0.02)
    process.kill()
    os.set_blocking(printed, True)
    while os.read(printed, 1000):
        pass  # it is empty when the jobs, which write to the same pipe, have ended as well
    os.close(printed)
    before, half_way = finished(directory), begun()
    assert 2 <= len(before) < 5
    load_python([path])
    outcome = run_sweep(read_grid(file).experiments, directory, load=[path])
    assert outcome.sentence.startswith(f"5 done ({len(before)} of them before)")
    after = finished(directory)
    assert len(after) == 5
    assert {name: after[name] for name in before} == before, "what was finished has been made again"
    resumed = begun()[len(half_way) :]
    assert sorted(resumed) == sorted(set(after) - set(before)), "each of the others was made once"
    for name in after:
        assert [row["round"] for row in StoredRun(directory / name).rows] == [0, 10]


def _is_claimed(directory, name):
    with claim(directory, name) as ours:
        return not ours


@pytest.mark.timeout(400)
def test_two_sweeps_in_one_directory_share_the_work(tmp_path, watched):
    path, begun = watched
    file = toml(tmp_path / "g.toml", method="slow", seed=list(range(6)), rounds=4)
    command = ["sweep", str(file), "--out", str(tmp_path / "runs"), "--load", str(path)]
    printed = [tmp_path / "first", tmp_path / "second"]
    for process in [start(output, main, command, NUMBA_DISABLE_JIT=1) for output in printed]:
        process.join()
    assert ["6 done" in output.read_text() for output in printed] == [True, True]
    assert len(begun()) == len(set(begun())) == 6


INTERRUPTED = "gossamer: interrupted; what is finished is kept\n"


@pytest.mark.timeout(400)
def test_interrupted_jobs_write_checkpoints(tmp_path, watched):
    path, _ = watched
    file = toml(tmp_path / "g.toml", method="slow", seed=[0, 1], rounds=100, evaluations=50)
    directory = tmp_path / "runs"
    command = ["sweep", str(file), "--out", str(directory), "--jobs", "2", "--load", str(path)]
    process = start(tmp_path / "printed", main, command, NUMBA_DISABLE_JIT=1)
    while len(list(directory.glob("*/metrics.jsonl"))) < 2:
        assert process.exitcode is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert (process.exitcode, (tmp_path / "printed").read_text()) == (130, INTERRUPTED)
    assert not finished(directory)
    assert len(list(directory.glob("*/checkpoints/round-*.ckpt"))) == 2


def test_an_interrupted_sweep_without_jobs_writes_a_checkpoint(tmp_path, watched, gossamer):
    path, _ = watched
    file = toml(tmp_path / "g.toml", method="interrupted", seed=[0, 1], rounds=100)
    _, err = gossamer("sweep", file, "--out", tmp_path / "runs", "--load", path, code=130)
    assert err == INTERRUPTED
    assert not finished(tmp_path / "runs")
    assert len(list((tmp_path / "runs").glob("*/checkpoints/round-*.ckpt"))) == 1


@pytest.mark.timeout(400)
def test_a_full_disk_stops_the_sweep_and_loses_nothing(tmp_path):
    """On a real file system without room, mounted in a namespace of its own."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this system does not let users mount file systems of their own")
    experiments = grid(seed=[0, 1], rounds=1)
    run_sweep(experiments[:1], tmp_path / "runs")
    file = toml(tmp_path / "g.toml", seed=[0, 1], rounds=1)
    place = tmp_path / "small"
    place.mkdir()
    script = f"""
        mount -t tmpfs -o size=4m none {place}
        cp -r {tmp_path}/runs {place}/runs
        free=$(df --output=avail -k {place} | tail -n 1)
        head -c $((free - 40))k /dev/zero > {place}/filler
        {sys.executable} -m gossamer sweep {file} --out {place}/runs --jobs 2 --json; echo "code $?"
        cat {place}/runs/*/done.json | grep -c failed
        cp -r {place}/runs {tmp_path}/kept
    """
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    code, failed = done.stdout.splitlines()
    assert (code, failed) == ("code 2", "0"), done.stderr
    outcome = run_sweep(experiments, tmp_path / "kept")
    assert (outcome.done, outcome.skipped) == (2, 1)
    (sentence,) = done.stderr.strip().splitlines()
    assert "No space left" in sentence or "the disk is probably full" in sentence
    assert sentence.endswith("What is finished is kept; start the sweep again to continue.")


def test_a_write_that_fails_ends_the_work_with_its_sentence(tmp_path, monkeypatch):
    experiments = grid(seed=[0, 1, 2])
    run_sweep(experiments[:1], tmp_path / "runs")
    real = os.fsync

    def full(descriptor):
        if len(finished(tmp_path / "runs")) == 2:
            raise OSError(28, "No space left on device")
        return real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"Cannot write .*No space left on device; .*make room"):
        run_sweep(experiments, tmp_path / "runs")
    monkeypatch.undo()
    assert {StoredRun(tmp_path / "runs" / name).status for name in finished(tmp_path / "runs")} == {"done"}
    assert run_sweep(experiments, tmp_path / "runs").skipped == 2


def test_places_and_numbers_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GossamerError, match="Cannot write"):
        run_sweep(grid(), tmp_path / "file" / "runs")
    with pytest.raises(GossamerError, match="at least one job"):
        run_sweep(grid(), tmp_path, jobs=0)
    with pytest.raises(GossamerError, match="no launcher 'slurn'; did you mean 'slurm'"):
        run_sweep(grid(), tmp_path, launcher="slurn")
    with pytest.raises(GossamerError, match="no logger 'tensorbord'; did you mean 'tensorboard'"):
        run_sweep(grid(), tmp_path, loggers=["tensorbord"])


def test_a_claim_excludes_others_and_names_its_holder(tmp_path):
    with claim(tmp_path, "run") as ours:
        assert ours
        assert holder(tmp_path, "run") == os.getpid()
        assert _is_claimed(tmp_path, "run")
        assert not _is_claimed(tmp_path, "other")
    assert holder(tmp_path, "run") is None
    assert not _is_claimed(tmp_path, "run")


def test_a_claim_ends_with_its_process(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from gossamer.experiments.locks import claim\n"
        "with claim(Path(sys.argv[1]), 'run') as ours: print(ours, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    assert _is_claimed(tmp_path, "run")
    process.kill()
    process.communicate()
    assert not _is_claimed(tmp_path, "run")


def test_a_plan_travels_as_json(tmp_path):
    plan = WorkPlan(directory=tmp_path, experiments=grid(seed=[0, 1]), workers=2, data_dir=tmp_path, loggers=("wandb",))
    assert WorkPlan.from_json(plan.to_json()) == plan
    assert "\n" not in plan.to_json()


def test_a_run_that_failed_before_it_began_says_what_was_asked(tmp_path):
    experiment = Experiment(**TINY)
    mark_failed(tmp_path / "run", experiment, "no data")
    run = StoredRun(tmp_path / "run")
    assert (run.status, run.label, run.cell, run.experiment) == (
        "failed", "Momentum Tracking", experiment.cell, experiment
    )  # fmt: skip


def test_a_failed_run_can_be_shown(tmp_path, capsys):
    from gossamer.cli.output import print_run

    mark_failed(tmp_path / "run", Experiment(**TINY), "no data")
    print_run(StoredRun(tmp_path / "run"))
    print_run(StoredRun(tmp_path / "run"), as_json=True)
    assert "failed\nno data\n" in capsys.readouterr().out


def test_runs_of_another_version_of_a_file_are_made_again(tmp_path, caplog):
    graph = tmp_path / "graph.txt"
    graph.write_text("0.5 0.5\n0.5 0.5\n")
    experiments = grid(topology=f"matrix:{graph}", seed=[0, 1])
    run_sweep(experiments, tmp_path / "runs")
    before = finished(tmp_path / "runs")
    graph.write_text("0.75 0.25\n0.25 0.75\n")
    outcome = run_sweep(experiments, tmp_path / "runs")
    assert (outcome.done, outcome.skipped) == (2, 0)
    assert caplog.messages == ["2 runs were made with another version of your files and will be made again."]
    assert not set(before.items()) & set(finished(tmp_path / "runs").items())


def test_the_sentence_tells_all():
    outcome = SweepOutcome(1, 2, 3, 4, 2, {}, 7200.0)
    assert outcome.sentence == "1 done, 2 diverged, 3 failed, 4 unfinished (2 of them before) in 2.0 h"


@pytest.mark.parametrize(
    ("error", "stops"),
    [
        (cannot_write(Path("runs/x/run.json"), OSError(28, "No space left on device")), True),
        (cannot_write(Path("runs/x/run.json"), PermissionError(13, "Permission denied")), True),
        (cannot_write(Path("runs/x/checkpoints/round-1.ckpt"), NotADirectoryError(20, "Not a directory")), False),
        (DiskError("Cannot read data/labels.gz: Permission denied"), False),
        (PermissionError(13, "Permission denied", "data/labels.gz"), False),
        (RuntimeError("it broke"), False),
    ],
)
def test_only_a_disk_that_takes_nothing_more_stops_the_sweep(tmp_path, monkeypatch, error, stops):
    def fail(*arguments):
        raise error

    monkeypatch.setattr("gossamer.experiments.training.train", fail)
    plan = WorkPlan(directory=tmp_path, experiments=[Experiment(**TINY)])
    with pytest.raises(DiskError) if stops else nullcontext():
        work(plan)
    assert StoredRun(tmp_path / plan.experiments[0].id).status == ("unfinished" if stops else "failed")


def test_runs_that_are_removed_with_their_directory_end_the_work(tmp_path):
    plan = WorkPlan(directory=tmp_path / "runs", experiments=grid(seed=[0, 1]))
    with pytest.raises(DiskError, match="has been removed while the run was using it"):
        work(plan, on_row=lambda experiment, row: shutil.rmtree(plan.directory, ignore_errors=True))
    assert not plan.directory.exists()


def test_a_run_during_which_a_process_of_the_same_sweep_died_is_left_to_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setenv(SWEEP, "this one")
    (tmp_path / ".claims").mkdir()
    for name, sweep in (("ours", "this one"), ("theirs", "another")):
        (tmp_path / ".claims" / name).write_text(f"1 {sweep}")
    with claim(tmp_path, "ours") as ours, claim(tmp_path, "theirs") as theirs:
        assert (ours, theirs) == (False, True)


def test_progress_counts_parts_of_runs_and_what_others_left(tmp_path):
    def row(r):
        return json.dumps({"round": r, "epoch": r / 2, "accuracy": 0.5}) + "\n"

    experiments = grid(seed=[0, 1], rounds=8)
    told = []
    run_sweep(experiments[:1], tmp_path, on_progress=lambda *words: told.append(words))
    begun = tmp_path / experiments[1].id
    begun.mkdir()
    (begun / "metrics.jsonl").write_text("".join(row(r) for r in (0, 2, 4)))
    with claim(tmp_path, experiments[1].id):
        reporter = _ProgressReporter(tmp_path, experiments[1:], 1, lambda *words: told.append(words))
        reporter.look()
        assert told[-1] == (0.75, "1 of 2 runs")
        with (begun / "metrics.jsonl").open("a") as file:
            file.write(row(6))
        reporter.look()
        assert told[-1] == (0.875, "1 of 2 runs, 0 s left")
