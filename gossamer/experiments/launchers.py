"""Where the jobs of a sweep run: processes on this machine, or jobs of submitit (on this machine or under SLURM)."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from gossamer.errors import GossamerError, InputError, unknown
from gossamer.experiments.job import SECONDS_TO_STOP, WorkPlan, work
from gossamer.experiments.locks import SWEEP

LAUNCHERS = ("processes", "local", "slurm")

_BEGAN = time.time_ns()
"""Together with the process id, the name of this process's sweeps."""

SLURM_KEYS = (
    "partition",
    "time",
    "cpus_per_task",
    "mem_gb",
    "gpus_per_node",
    "account",
    "qos",
    "constraint",
    "comment",
    "exclude",
    "nodelist",
)
"""The keys of the table [slurm]; `time` is in minutes."""


class Launcher(Protocol):
    """Jobs that have been started."""

    def running(self) -> int:
        """How many jobs have not ended."""

    def lost(self) -> list[tuple[int | None, str]]:
        """Process id (None for a cluster job) and reason of each job that has failed since the last call."""

    def stop(self) -> None:
        """Ask every job to write a checkpoint and end."""


class Processes:
    """One process of this machine per job. They end when the sweep does, however it ends."""

    def __init__(self, plan: WorkPlan, jobs: int) -> None:
        self._jobs = [_start(plan) for _ in range(jobs)]
        self._reported: set[int] = set()

    def running(self) -> int:
        """How many processes have not ended."""
        return sum(job.poll() is None for job in self._jobs)

    def lost(self) -> list[tuple[int | None, str]]:
        """Those that ended with an exit code other than 0."""
        found: list[tuple[int | None, str]] = []
        for job in self._jobs:
            if job.poll() and job.pid not in self._reported:
                self._reported.add(job.pid)
                found.append((job.pid, _why(job)))
        return found

    def stop(self) -> None:
        """Ask all to end, wait, and kill those that do not."""
        for job in self._jobs:
            if job.poll() is None:
                job.send_signal(signal.SIGTERM)
        for job in self._jobs:
            try:
                job.wait(SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()
            for pipe in (job.stdin, job.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _start(plan: WorkPlan) -> subprocess.Popen[str]:
    job = subprocess.Popen(
        [sys.executable, "-m", "gossamer.experiments.job"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C in a terminal goes to the sweep alone, which then stops its jobs.
        process_group=0,
        env={**os.environ, "OMP_NUM_THREADS": str(plan.workers or 1), SWEEP: f"{os.getpid()}-{_BEGAN}"},
    )
    with contextlib.suppress(BrokenPipeError):  # it has ended already; `lost` will report it
        print(plan.to_json(), file=job.stdin, flush=True)
    return job


def _why(job: subprocess.Popen[str]) -> str:
    if job.returncode == 2 and job.stdout is not None:
        return job.stdout.read().strip()
    if job.returncode < 0:
        name = signal.Signals(-job.returncode).name
        hint = "; memory may have run out, so try fewer jobs" if name == "SIGKILL" else ""
        return f"The process that made it was ended by {name}{hint}."
    return f"The process that made it ended with exit code {job.returncode}; its last output is above."


class Submitted:
    """Jobs of submitit: "local" starts them on this machine, "slurm" hands them to the cluster."""

    def __init__(self, plan: WorkPlan, jobs: int, cluster: str, parameters: dict[str, Any]) -> None:
        submitit = _submitit()
        executor = submitit.AutoExecutor(folder=plan.directory / ".jobs" / "%j", cluster=cluster)
        executor.update_parameters(name=f"gossamer-{plan.project}"[:60], **_parameters(cluster, parameters))
        try:
            with executor.batch():
                self._jobs = [executor.submit(work_from_json, plan.to_json()) for _ in range(jobs)]
        except (OSError, RuntimeError, submitit.core.utils.FailedJobError) as error:
            raise GossamerError(f"The cluster did not accept the jobs: {error}") from error
        self._reported: set[str] = set()

    def running(self) -> int:
        """How many jobs have not ended."""
        return sum(not job.done() for job in self._jobs)

    def lost(self) -> list[tuple[int | None, str]]:
        """Those that raised, or that the cluster ended."""
        found: list[tuple[int | None, str]] = []
        for job in self._jobs:
            if job.job_id in self._reported or not job.done():
                continue
            self._reported.add(job.job_id)
            sentence = _result(job)
            if sentence:
                found.append((None, sentence))
        return found

    def stop(self) -> None:
        """Cancel all. Unfinished runs keep their last checkpoint, which is written every minute."""
        for job in self._jobs:
            if not job.done():
                job.cancel(check=False)


def work_from_json(text: str) -> str:
    """The function that a submitted job runs; returns the reason why it stopped, or an empty string."""
    try:
        work(WorkPlan.from_json(text))
    except GossamerError as error:
        return str(error)
    return ""


def _result(job: Any) -> str:
    try:
        return str(job.result())
    except Exception as error:
        return f"Job {job.job_id} ended: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"


def launch(launcher: str, plan: WorkPlan, jobs: int, slurm: dict[str, Any]) -> Launcher:
    """Start `jobs` jobs."""
    check_launcher(launcher, slurm)
    if launcher == "processes":
        return Processes(plan, jobs)
    return Submitted(plan, jobs, launcher, slurm)


def check_launcher(launcher: str, slurm: dict[str, Any]) -> None:
    """Refuse, before any work is done, what cannot be launched."""
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    for key in slurm:
        if key not in SLURM_KEYS:
            raise unknown("key of [slurm]", key, SLURM_KEYS)
    if launcher != "processes":
        _submitit()
    if launcher == "slurm" and not any((Path(p) / "sbatch").exists() for p in os.get_exec_path()):
        raise InputError(
            "There is no sbatch here, so SLURM cannot be reached; start the sweep on a login node of the cluster, "
            "or leave out --launcher to run on this machine."
        )


def _submitit() -> Any:
    if importlib.util.find_spec("submitit") is None:
        raise InputError("This launcher needs submitit; run: pip install 'gossamer[slurm]'.")
    import submitit

    return submitit


def _parameters(cluster: str, given: dict[str, Any]) -> dict[str, Any]:
    """The keys of [slurm] as submitit names them."""
    general = {"time": "timeout_min", **{key: key for key in ("cpus_per_task", "mem_gb", "gpus_per_node")}}
    common = {new: given[old] for old, new in general.items() if old in given}
    common.setdefault("timeout_min", 24 * 60)
    if cluster == "local":
        return common
    return {**common, **{f"slurm_{k}": v for k, v in given.items() if k not in general}}
