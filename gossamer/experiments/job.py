"""One job of a sweep: claim a run, make it, and continue with the next one that is neither made nor claimed.

All jobs walk the same list and coordinate through claims on disk. It does not matter how many there are, whether they
belong to one sweep or to two, or on which machine they run.

As a program (`python -m gossamer.experiments.job`) it reads its plan as one line of JSON from standard input, and
ends when standard input is closed: a job does not outlive the sweep that started it.
"""

import errno
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gossamer._common.formatting import Row, say
from gossamer.errors import DiskError, GossamerError, describe
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.locks import claim
from gossamer.experiments.loggers import logging_to
from gossamer.experiments.store import write_json
from gossamer.experiments.user_files import load_python

SECONDS_BETWEEN_LOOKS = 0.1
"""How often a job that has nothing left to claim checks whether others have finished."""

SECONDS_TO_STOP = 60.0
"""How long a job may take to write its checkpoint before it is killed."""

NO_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""What every other run would meet as well: the disk is full, broken or write-protected."""


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """What the jobs of a sweep are to do; it is sent to them as JSON."""

    directory: Path
    """The directory of the runs; each is in the subdirectory of its id."""
    experiments: list[Experiment]
    workers: int | None = None
    device: str = "cpu"
    data_dir: Path | None = None
    loggers: tuple[str, ...] = ()
    project: str = "gossamer"
    """The project that Weights & Biases files the runs under."""
    load: tuple[Path, ...] = ()
    """Python files that define methods of the user's own."""

    def to_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    @classmethod
    def from_json(cls, text: str) -> "WorkPlan":
        """The plan that `to_json` wrote."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))


OnRow = Callable[[Experiment, Row], None]
"""Called with the figures of each evaluation."""


def work(
    plan: WorkPlan,
    on_row: OnRow = lambda experiment, row: None,
    on_step: Callable[[], None] = lambda: None,
    progress: bool | None = False,
) -> None:
    """Make runs until all of the plan are settled, by this job or by others; `on_step` is called in between.

    `progress` is that of `simulate`: whether a run shows how far it is. A run that fails is marked with its reason, and
    the next one is made. If nothing can be written any more, a `DiskError` ends the work.
    """

    def note(experiment: Experiment, row: Row) -> None:
        on_row(experiment, row)
        on_step()

    load_python(plan.load)
    left = plan.experiments
    while left:
        claimed = []
        for experiment in left:
            if is_settled(plan.directory / experiment.id):
                continue
            with claim(plan.directory, experiment.id) as ours:
                if not ours:
                    claimed.append(experiment)
                elif not is_settled(plan.directory / experiment.id):
                    _make(plan, experiment, note, progress)
            on_step()
        left = claimed
        if left:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            on_step()


def is_settled(directory: Path) -> bool:
    """Whether a run is done, diverged or failed."""
    return (directory / "done.json").exists()


def mark_failed(directory: Path, experiment: Experiment, reason: str, trace: str = "") -> None:
    """Record that a run could not be made, and why."""
    from gossamer.experiments.training import describe as describe_run

    if not (directory / "run.json").exists():
        # It failed before its data and graph were made.
        write_json(directory / "run.json", describe_run(experiment, None, None, "simulated"))
    write_json(directory / "done.json", {"status": "failed", "reason": reason, "traceback": trace})


def _make(plan: WorkPlan, experiment: Experiment, on_row: OnRow, progress: bool | None) -> None:
    from gossamer.experiments.training import Execution, train

    directory = plan.directory / experiment.id
    try:
        with logging_to(plan.loggers, directory, experiment, plan.project) as callbacks:
            execution = Execution(
                data_dir=plan.data_dir,
                workers=plan.workers,
                device=plan.device,
                progress=progress,
                callbacks=[*callbacks, lambda row: on_row(experiment, row)],
            )
            train(experiment, directory, execution)
    except Exception as error:
        if isinstance(error, DiskError) and (error.errno in NO_STORAGE or not plan.directory.is_dir()):
            raise
        if not is_settled(directory):
            sentence = str(error) if isinstance(error, GossamerError) else describe(error)
            mark_failed(directory, experiment, sentence, traceback.format_exc())


def _end_with_standard_input() -> None:
    def watch() -> None:
        sys.stdin.read()
        # SIGTERM: a run writes a checkpoint first.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """0: nothing left to do; 2: stopped, with the reason on standard output; 130: interrupted."""
    plan = WorkPlan.from_json(sys.stdin.readline())
    _end_with_standard_input()
    try:
        # Output of a user's method must not fill the pipe, which is read only at the end.
        with redirect_stdout(sys.stderr):
            work(plan)
    except GossamerError as error:
        say(error)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
