"""What one job of a sweep does: claim a run, make it, and go on to the next that nobody has made or is making.

All jobs walk the same list and agree through claims on disk, so it does not matter how many there are, whether they
belong to one sweep or to two, or on which machine they run.

As a program (`python -m gossamer.experiments.job`) it reads its plan as one line of JSON from standard input, and
ends when standard input is closed: a job does not outlive the sweep that started it.
"""

import errno
import json
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
from typing import Any

from gossamer._common.metrics import Row
from gossamer.errors import GossamerError, describe
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.locks import claim
from gossamer.experiments.loggers import logging_to
from gossamer.experiments.own_methods import load_python
from gossamer.experiments.store import write_json

SECONDS_BETWEEN_LOOKS = 0.1
"""How often a job that has nothing left to claim looks whether others have finished."""

SECONDS_TO_STOP = 60.0
"""How long a job may take to write its checkpoint before it is killed."""

STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


class StorageError(GossamerError):
    """Nothing more can be written: the sweep stops, and what is finished stays finished."""


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """What the jobs of a sweep are to do, in plain words that travel as JSON."""

    directory: Path
    """Where the runs lie, each in the directory of its id."""
    experiments: list[Experiment]
    workers: int | None = None
    device: str = "cpu"
    data_dir: Path | None = None
    loggers: tuple[str, ...] = ()
    project: str = "gossamer"
    """The name under which loggers that know projects file the runs."""
    load: tuple[Path, ...] = ()
    """Python files that define methods of the user's own."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(
            {
                "directory": str(self.directory),
                "experiments": [e.to_dict() for e in self.experiments],
                "workers": self.workers,
                "device": self.device,
                "data_dir": self.data_dir and str(self.data_dir),
                "loggers": self.loggers,
                "project": self.project,
                "load": [str(path) for path in self.load],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "WorkPlan":
        """The plan that `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(
            directory=Path(values["directory"]),
            experiments=[Experiment.from_dict(e) for e in values["experiments"]],
            workers=values["workers"],
            device=values["device"],
            data_dir=Path(values["data_dir"]) if values["data_dir"] else None,
            loggers=tuple(values["loggers"]),
            project=values["project"],
            load=tuple(map(Path, values["load"])),
        )


OnRow = Callable[[Experiment, Row], None]
"""Called with the figures of each evaluation."""


def work(
    plan: WorkPlan, on_row: OnRow = lambda experiment, row: None, on_step: Callable[[], None] = lambda: None
) -> None:
    """Make runs until all of the plan are settled, by this job or by others; `on_step` is called now and then.

    A run that fails is marked with its reason and the next one is made; a `StorageError` ends the work.
    """

    def note(experiment: Experiment, row: Row) -> None:
        on_row(experiment, row)
        on_step()

    load_python(plan.load)
    left = plan.experiments
    while left:
        open_ = []
        for experiment in left:
            if is_settled(plan.directory / experiment.id):
                continue
            with claim(plan.directory, experiment.id) as ours:
                if not ours:
                    open_.append(experiment)
                elif not is_settled(plan.directory / experiment.id):
                    _make(plan, experiment, note)
            on_step()
        left = open_
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
        # It failed before anything was known of it but what was asked.
        write_json(directory / "run.json", describe_run(experiment, None, None, "simulated"))
    write_json(directory / "done.json", {"status": "failed", "reason": reason, "traceback": trace})


def _make(plan: WorkPlan, experiment: Experiment, on_row: OnRow) -> None:
    from gossamer.experiments.training import Execution, train

    directory = plan.directory / experiment.id
    try:
        with logging_to(plan.loggers, directory, experiment, plan.project) as callbacks:
            execution = Execution(
                data_dir=plan.data_dir,
                workers=plan.workers,
                device=plan.device,
                progress=False,
                callbacks=[*callbacks, lambda row: on_row(experiment, row)],
            )
            train(experiment, directory, execution)
    except Exception as error:
        sentence = str(error) if isinstance(error, GossamerError) else describe(error)
        stop_if_storage_is_exhausted(plan.directory, error, sentence)
        if not is_settled(directory):
            mark_failed(directory, experiment, sentence, traceback.format_exc())


def stop_if_storage_is_exhausted(directory: Path, error: BaseException, sentence: str) -> None:
    """torch reports a failed write as a RuntimeError, so besides the error its cause and the disk itself are asked."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in STORAGE and _concerns(cause, directory):
            raise StorageError(sentence) from error
        cause = cause.__cause__ or cause.__context__
    if "PytorchStreamWriter failed" in str(error):
        raise StorageError(
            f"Cannot write to {directory}: the disk is probably full; make room and start the sweep again."
        ) from error


def _concerns(error: OSError, directory: Path) -> bool:
    """Whether a file of the sweep could not be written; a dataset that may not be read is one run's trouble."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or str(directory) in str(error.filename)


def _end_with_standard_input() -> None:
    def watch() -> None:
        sys.stdin.read()
        # As if asked to end: a training writes its checkpoint first.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """0: nothing left to do; 2: stopped, with the reason on standard output; 130: interrupted."""
    plan = WorkPlan.from_json(sys.stdin.readline())
    _end_with_standard_input()
    try:
        # What a user's own method prints must not fill the pipe, which is read at the end only.
        with redirect_stdout(sys.stderr):
            work(plan)
    except GossamerError as error:
        print(error)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
