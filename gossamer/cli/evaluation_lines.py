"""How far a single run is, on standard error, where no bar can be shown: one line for every evaluation."""

import sys
import time
from collections.abc import Callable

from gossamer._common.formatting import NONE, duration, percent, word
from gossamer._common.metrics import Row
from gossamer.cli.sweep_progress import PATIENCE
from gossamer.experiments.experiment import Experiment


def evaluation_lines(experiment: Experiment) -> Callable[[Row], None]:
    """A callback that prints the figures of an evaluation and the time that is left.

    The time left follows from what was done since the first evaluation seen here, so that it also holds for a run that
    goes on from a checkpoint.
    """
    began = time.monotonic()
    first: float | None = None

    def tell(row: Row) -> None:
        nonlocal first
        unit, total = ("round", experiment.rounds) if experiment.rounds else ("epoch", experiment.epochs)
        at = row[unit] / total
        first = at if first is None else first
        spent = time.monotonic() - began
        if spent < PATIENCE:
            return
        figures = (
            f"accuracy {percent(row['accuracy'])} % (worst node {percent(row['accuracy_min'])} %), "
            f"train loss {NONE if row['train_loss'] is None else format(row['train_loss'], '.3g')}"
        )
        left = f"; about {duration(spent * (1 - at) / (at - first))} left" if first < at < 1 else ""
        print(f"{unit} {word(row[unit])} of {word(total)}: {figures}{left}", file=sys.stderr, flush=True)

    return tell
