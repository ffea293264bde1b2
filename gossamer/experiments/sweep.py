"""Many experiments in one directory, each made exactly once, even if the sweep is stopped and started again.

    DIRECTORY/<id>/       a run
    DIRECTORY/.claims/    which process is making which run
    DIRECTORY/sweep.json  the ids of all runs of the sweep that was started last

A sweep that is started again continues: finished runs (done or diverged) are kept, unfinished ones continue from their
checkpoints, failed ones are tried again. A run whose method or graph comes from a user's file that has changed since is
made again. Two sweeps in one directory share the work.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer._common.files import check_writable
from gossamer._common.formatting import duration
from gossamer._common.signals import deferred_interrupts
from gossamer.engine.hardware import cores
from gossamer.errors import GossamerError, InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.job import OnRow, WorkPlan, is_settled, mark_failed, work
from gossamer.experiments.launchers import Launcher, check_launcher, launch
from gossamer.experiments.locks import claim, holder, is_claimed
from gossamer.experiments.loggers import check_loggers
from gossamer.experiments.store import PLAN, StoredRun, clear, write_json
from gossamer.experiments.user_files import load_python

SECONDS_BETWEEN_LOOKS = 0.2

log = logging.getLogger("gossamer")

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class SweepOutcome:
    """How many runs ended in which way."""

    done: int
    diverged: int
    failed: int
    unfinished: int
    """Not made, because the job that should have made it was lost."""
    skipped: int
    """Those of the above that were finished before this sweep began."""
    reasons: dict[str, str]
    """Why runs diverged or failed, by their ids."""
    seconds: float

    @property
    def sentence(self) -> str:
        """A summary in one line."""
        counts = [(self.done, "done"), (self.diverged, "diverged"), (self.failed, "failed")]
        parts = [f"{n} {word}" for n, word in [*counts, (self.unfinished, "unfinished")] if n or word == "done"]
        before = f" ({self.skipped} of them before)" if self.skipped else ""
        return f"{', '.join(parts)}{before} in {duration(round(self.seconds))}"


def run_sweep(
    experiments: Sequence[Experiment],
    directory: Path | str,
    *,
    jobs: int = 1,
    launcher: str = "processes",
    slurm: dict[str, Any] | None = None,
    data_dir: Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    loggers: Sequence[str] = (),
    project: str = "gossamer",
    load: Sequence[Path] = (),
    on_row: OnRow = lambda experiment, row: None,
    on_progress: Progress = lambda fraction, text: None,
) -> SweepOutcome:
    """Make every experiment in `directory`/<its id>.

    jobs
        Runs at the same time. One job on this machine works in this process.
    launcher
        "processes" of this machine, or submitit's "local" and "slurm".
    workers
        Threads of each job; by default the cores of this machine are divided evenly.
    load
        Python files that define methods of your own: jobs in other processes must know them too.
    on_row
        Called with the experiment and the figures of each evaluation in this process, so with one job.
    on_progress
        Called with the fraction done and a line of text: counts and time left.
    """
    began = time.perf_counter()
    directory, slurm = Path(directory), slurm or {}
    if jobs < 1:
        raise InputError(f"A sweep needs at least one job, but jobs is {jobs}.")
    check_launcher(launcher, slurm)
    check_loggers(loggers)
    load_python([Path(path) for path in load])
    check_writable(directory / "run.json")
    left = [e for e in experiments if not StoredRun(directory / e.id).finished]
    skipped = len(experiments) - len(left)
    _reopen(directory, left)
    write_json(directory / PLAN, {"runs": [e.id for e in experiments]})  # for `gossamer watch`
    if workers is None and launcher != "slurm":
        workers = max(1, cores() // jobs)
    plan = WorkPlan(
        directory=directory,
        experiments=left,
        workers=workers,
        device=device,
        data_dir=data_dir,
        loggers=tuple(loggers),
        project=project,
        load=tuple(load),
    )
    reporter = _ProgressReporter(directory, left, skipped, on_progress)
    reporter.look()
    if left and jobs == 1 and launcher == "processes":
        # On a terminal the sweep itself shows how far it is.
        progress = False if sys.stderr.isatty() else None
        work(plan, on_row, on_step=lambda: reporter.look(now=False), progress=progress)
    elif left:
        _run_jobs(launcher, plan, min(jobs, len(left)), slurm, reporter)
    reporter.look()
    return _outcome(directory, experiments, skipped, time.perf_counter() - began)


def _reopen(directory: Path, experiments: Sequence[Experiment]) -> None:
    """Remove done.json of failed runs, and outdated runs completely; runs that are being made are left alone."""
    outdated = 0
    for place in (directory / e.id for e in experiments):
        if not is_settled(place) and not StoredRun(place).outdated:
            continue
        with claim(directory, place.name) as ours:
            run = StoredRun(place)
            if ours and run.outdated:
                clear(place)
                outdated += 1
            elif ours and not run.finished:
                (place / "done.json").unlink(missing_ok=True)
    if outdated:
        runs = "1 run was" if outdated == 1 else f"{outdated} runs were"
        log.warning("%s made with another version of your files and will be made again.", runs)


def _run_jobs(launcher: str, plan: WorkPlan, jobs: int, slurm: dict[str, Any], reporter: "_ProgressReporter") -> None:
    with deferred_interrupts() as interrupt:
        started = [launch(launcher, plan, jobs, slurm)]
        try:
            while any(group.running() for group in started):
                time.sleep(SECONDS_BETWEEN_LOOKS)
                if interrupt.requested:
                    raise KeyboardInterrupt
                reporter.look()
                replacements = sum(_record_lost_jobs(group, plan, reporter) for group in started)
                if replacements and reporter.left:
                    started.append(launch(launcher, plan, replacements, slurm))
            for group in started:
                _record_lost_jobs(group, plan, reporter)
        finally:
            for group in started:
                group.stop()


def _record_lost_jobs(group: Launcher, plan: WorkPlan, reporter: "_ProgressReporter") -> int:
    """Mark runs whose jobs were lost as failed. Returns how many jobs to replace; raises if a job lost no run."""
    replacements = 0
    for process, sentence in group.lost():
        victims = [e for e in reporter.left if process is not None and holder(plan.directory, e.id) == process]
        for experiment in victims:
            with claim(plan.directory, experiment.id) as ours:
                if ours and not is_settled(plan.directory / experiment.id):
                    mark_failed(plan.directory / experiment.id, experiment, sentence)
                    replacements += 1
        if not victims:
            raise GossamerError(f"{sentence} What is finished is kept; start the sweep again to continue.")
    return replacements


class _ProgressReporter:
    """Reports the progress of a sweep from the files of its runs."""

    def __init__(self, directory: Path, left: Sequence[Experiment], skipped: int, on_progress: Progress) -> None:
        self.left = list(left)
        self._directory = directory
        self._total = len(left) + skipped
        self._troubled = 0
        self._on_progress = on_progress
        self._began = time.monotonic()
        self._looked = -math.inf
        self._at_start = sum(map(self._part, left)) - len(left)

    def look(self, now: bool = True) -> None:
        """Report the progress; unless `now`, at most every SECONDS_BETWEEN_LOOKS."""
        if not now and time.monotonic() - self._looked < SECONDS_BETWEEN_LOOKS:
            return
        self._looked = time.monotonic()
        for experiment in list(self.left):
            if is_settled(self._directory / experiment.id):
                self.left.remove(experiment)
                self._troubled += StoredRun(self._directory / experiment.id).status != "done"
        text = f"{self._total - len(self.left)} of {self._total} runs"
        if self._troubled:
            text += f", {self._troubled} failed or diverged"
        remaining = len(self.left) - sum(self._part(e) for e in self.left if is_claimed(self._directory, e.id))
        made = -self._at_start - remaining
        if made > 0 and self.left:
            text += f", {duration(round((time.monotonic() - self._began) / made * remaining))} left"
        self._on_progress(1 - remaining / self._total if self._total else 1.0, text)

    def _part(self, experiment: Experiment) -> float:
        """The fraction of an unfinished run that has been made, by its last evaluation."""
        rows = StoredRun(self._directory / experiment.id).rows
        return min(experiment.progress(rows[-1]), 0.99) if rows else 0.0


def _outcome(directory: Path, experiments: Sequence[Experiment], skipped: int, seconds: float) -> SweepOutcome:
    counts = {"done": 0, "diverged": 0, "failed": 0, "unfinished": 0}
    reasons = {}
    for experiment in experiments:
        run = StoredRun(directory / experiment.id)
        counts[run.status] += 1
        if run.outcome and "reason" in run.outcome:
            reasons[experiment.id] = str(run.outcome["reason"])
    return SweepOutcome(**counts, skipped=skipped, reasons=reasons, seconds=seconds)
