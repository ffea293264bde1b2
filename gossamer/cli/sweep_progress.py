"""How far the runs of a sweep are, on standard error: a bar on a terminal, elsewhere a line for every run that ends."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._common.formatting import duration, percent, word
from gossamer._common.progress import progress_bar
from gossamer.cli.ranking import differing
from gossamer.experiments.experiment import Experiment

if TYPE_CHECKING:
    from gossamer.experiments.store import StoredRun

PATIENCE = 5.0
"""Seconds before the first line: a command that ends sooner writes nothing but its result."""


Progress = Callable[[float, str], None]


@contextmanager
def sweep_progress(title: str, experiments: Sequence[Experiment], directory: Path) -> Iterator[Progress]:
    """What `run_sweep` is to call with its progress."""
    if sys.stderr.isatty():
        with progress_bar(title) as advance:
            yield advance
    else:
        yield finished_lines(experiments, directory)


def finished_lines(experiments: Sequence[Experiment], directory: Path) -> Progress:
    """The lines alone; nothing on a terminal."""
    from gossamer.experiments.job import is_settled
    from gossamer.experiments.store import StoredRun

    if sys.stderr.isatty():
        return lambda fraction, text: None
    axes = [key for key in differing([e.to_dict() for e in experiments]) if key != "method"]
    left: list[Experiment] | None = None
    began = time.monotonic()

    def look(fraction: float, text: str) -> None:
        nonlocal left
        if left is None:
            # Those that were there before the first look have not been made now.
            left = [e for e in experiments if not is_settled(directory / e.id)]
        if time.monotonic() - began < PATIENCE:
            return
        for experiment in [e for e in left if is_settled(directory / e.id)]:
            left.remove(experiment)
            place = ", ".join([experiment.label, *(f"{key} {word(getattr(experiment, key))}" for key in axes)])
            end = _end(StoredRun(directory / experiment.id))
            print(f"{len(experiments) - len(left)} of {len(experiments)}: {place}: {end}", file=sys.stderr, flush=True)

    return look


def _end(run: "StoredRun") -> str:
    """How a run ended, and how long it took."""
    outcome = run.outcome or {}
    result = f"{percent(run.rows[-1]['accuracy'])} %" if run.status == "done" and run.rows else run.status
    return f"{result} in {duration(outcome['seconds'])}" if "seconds" in outcome else result
