"""Jobs through submitit: the same work, elsewhere."""

import os

import pytest

from gossamer import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.job import WorkPlan
from gossamer.experiments.launchers import Submitted, check_launcher, work_from_json
from gossamer.experiments.sweep import run_sweep

TINY = {"rounds": 2, "batch_size": 16, "evaluations": 1, "nodes": 2, "partition": "k-class:k=5", "lr": 0.05}


@pytest.fixture
def _submitit(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # a job would load kernels for a few rounds
    pytest.importorskip("submitit", reason="pip install 'gossamer[slurm]'")


@pytest.mark.usefixtures("_submitit")
def test_submitted_jobs_make_every_run(tmp_path):
    experiments = [Experiment(**TINY, seed=seed) for seed in range(2)]
    outcome = run_sweep(experiments, tmp_path / "runs", launcher="local", slurm={"time": 5})
    assert (outcome.done, outcome.failed) == (2, 0)


@pytest.mark.usefixtures("_submitit")
def test_a_submitted_job_that_stops_says_why(tmp_path):
    own = tmp_path / "own_on_one_machine.py"
    own.write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise RuntimeError('not on this machine')\n"
        "import gossamer as gs\nclass Own(gs.DSGD):\n    name = 'own-on-one-machine'\n"
    )
    with pytest.raises(GossamerError, match=r"RuntimeError: not on this machine.* start the sweep again"):
        run_sweep([Experiment(**TINY)], tmp_path, launcher="local", load=[own])


def test_a_file_that_is_not_there_is_refused_before_anything_is_submitted(tmp_path):
    with pytest.raises(GossamerError, match=r"There is no file nowhere\.py to load"):
        run_sweep([Experiment(**TINY)], tmp_path / "runs", load=["nowhere.py"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("_submitit")
def test_slurm_is_asked_for_what_the_table_says(tmp_path, monkeypatch):
    """A stand-in for sbatch takes the file that submitit has written and says what sbatch says."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sbatch", "srun"):
        (programs / name).write_text('#!/bin/sh\ncp "$1" "$KEPT"\necho "Submitted batch job 17"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("KEPT", str(tmp_path / "kept.sh"))
    check_launcher("slurm", {"partition": "long"})
    plan = WorkPlan(directory=tmp_path / "runs", experiments=[Experiment(**TINY)], project="tables")
    Submitted(plan, 2, "slurm", {"partition": "long", "time": 90, "cpus_per_task": 4, "mem_gb": 8, "account": "me"})
    text = (tmp_path / "kept.sh").read_text()
    for words in ("partition=long", "time=90", "cpus-per-task=4", "mem=8GB", "account=me", "array=0-1%2"):
        assert f"#SBATCH --{words}" in text
    assert "job-name=gossamer-tables" in text


@pytest.mark.usefixtures("_submitit")
def test_without_slurm_there_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GossamerError, match="There is no sbatch here"):
        check_launcher("slurm", {})


def test_unknown_words_and_missing_packages_are_named(monkeypatch):
    with pytest.raises(GossamerError, match=r"no key of \[slurm\] 'partitoin'; did you mean 'partition'"):
        check_launcher("slurm", {"partitoin": "x"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"needs submitit; run: pip install 'gossamer\[slurm\]'"):
        check_launcher("local", {})


def test_a_submitted_job_returns_its_sentence(tmp_path):
    plan = WorkPlan(directory=tmp_path / "runs", experiments=[Experiment(**TINY)], workers=1)
    assert work_from_json(plan.to_json()) == ""
    (tmp_path / "file").touch()
    blocked = WorkPlan(directory=tmp_path / "file" / "runs", experiments=[Experiment(**TINY)], workers=1)
    assert "Cannot write" in work_from_json(blocked.to_json())
