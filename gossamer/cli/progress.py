"""What commands show on standard error while runs are made.

On a terminal: a bar, or a table that fills. Elsewhere: a line for every run of a sweep that ends, or for every
evaluation of a single run, and about once a minute if there was nothing else.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._common.formatting import (
    NONE,
    SECONDS_BETWEEN_LINES,
    Advance,
    Row,
    duration,
    printable,
    progress_bar,
    say,
    word,
)
from gossamer.cli.output import differing
from gossamer.experiments.experiment import Experiment

if TYPE_CHECKING:
    from gossamer.experiments.store import StoredRun

GRACE_PERIOD = 5.0
"""Seconds before the first line: a command that ends sooner prints only its result."""


@contextmanager
def sweep_progress(title: str, experiments: Sequence[Experiment], directory: Path) -> Iterator[Advance]:
    """A callback for `run_sweep`: a bar on a terminal, elsewhere `finished_lines`."""
    if sys.stderr.isatty():
        with progress_bar(title) as advance:
            yield advance
    else:
        yield finished_lines(experiments, directory)


def finished_lines(experiments: Sequence[Experiment], directory: Path) -> Advance:
    """A callback for `run_sweep` that prints a line for every run that ends; it prints nothing on a terminal.

    After a minute without one it prints how many are done, and the time left.
    """
    from gossamer.experiments.job import is_settled
    from gossamer.experiments.store import StoredRun

    if sys.stderr.isatty():
        return lambda fraction, text: None
    axes = [key for key in differing([e.to_dict() for e in experiments]) if key != "method"]
    left: list[Experiment] | None = None
    began = told = time.monotonic()

    def look(fraction: float, text: str) -> None:
        nonlocal left, told
        if left is None:
            # Runs that were finished before the first call are not reported.
            left = [e for e in experiments if not is_settled(directory / e.id)]
        if time.monotonic() - began < GRACE_PERIOD:
            return
        for experiment in [e for e in left if is_settled(directory / e.id)]:
            left.remove(experiment)
            name = ", ".join([experiment.label, *(f"{key} {word(getattr(experiment, key))}" for key in axes)])
            end = _end(StoredRun(directory / experiment.id))
            say(f"{len(experiments) - len(left)} of {len(experiments)}: {name}: {end}", error=True)
            told = time.monotonic()
        if left and time.monotonic() - told >= SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            say(text, error=True)

    return look


def _end(run: "StoredRun") -> str:
    """How a run ended, and how long it took."""
    outcome = run.outcome or {}
    result = run.status
    if run.status == "done" and run.rows:
        shown = run.metric.with_unit(run.rows[-1][run.metric.name])
        result = shown if run.metric.percent else f"{run.metric.name} {shown}"
    return f"{result} in {duration(outcome['seconds'])}" if "seconds" in outcome else result


def evaluation_lines(experiment: Experiment) -> Callable[[Row], None]:
    """A callback that prints the figures of an evaluation and the time left.

    The time left is estimated from the progress since the first evaluation seen here, so it also holds for a run that
    continues from a checkpoint.
    """
    began = time.monotonic()
    first: float | None = None

    def tell(row: Row) -> None:
        nonlocal first
        unit, total = ("round", experiment.rounds) if experiment.rounds else ("epoch", experiment.epochs)
        at = experiment.progress(row)
        first = at if first is None else first
        spent = time.monotonic() - began
        if spent < GRACE_PERIOD:
            return
        metric = experiment.metric_facts
        figures = (
            f"{metric.name} {metric.with_unit(row[metric.name])} (worst node {metric.with_unit(metric.worst(row))}) "
            f"on {row['test_samples']} test samples, "
            f"train loss {NONE if row['train_loss'] is None else format(row['train_loss'], '.3g')}"
        )
        left = f"; about {duration(spent * (1 - at) / (at - first))} left" if first < at < 1 else ""
        say(f"{unit} {word(row[unit])} of {word(total)}: {figures}{left}", error=True)

    return tell


@contextmanager
def live_table(
    experiments: Sequence[Experiment], shown: bool | None = None
) -> Iterator[Callable[[Experiment, Row], None]]:
    """A table with a line per experiment, on a terminal; call what it yields with the figures of each evaluation."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda experiment, row: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    newest: dict[str, Row] = {}
    metrics = {e.id: e.metric_facts for e in experiments}
    names = {metric.name for metric in metrics.values()}
    shared = names.pop() if len(names) == 1 else "metric"

    def table() -> Table:
        result = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("method", "step size", "seed", "epoch", shared, "worst node", "loss", "consensus"):
            result.add_column(title, justify="left" if title == "method" else "right", no_wrap=True)
        for e in experiments:
            row, metric = newest.get(e.id), metrics[e.id]
            figures = ["-"] * 5
            if row:
                figures = [
                    f"{row['epoch']:.1f}",
                    metric.shown(row[metric.name]),
                    metric.shown(metric.worst(row)),
                    f"{row['loss']:.3f}",
                    f"{row['consensus_distance']:.2g}",
                ]
            result.add_row(Text(printable(e.label)), f"{e.lr:g}", str(e.seed), *figures)
        return result

    with Live(table(), console=Console(stderr=True, force_terminal=shown), transient=True, auto_refresh=False) as live:

        def watch(experiment: Experiment, row: Row) -> None:
            newest[experiment.id] = row
            live.update(table(), refresh=True)

        yield watch
