"""A table that fills while runs are under way: on standard error, and only on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gossamer.experiments.experiment import Experiment

Watch = Callable[[Experiment, dict[str, Any]], None]


@contextmanager
def live_table(experiments: Sequence[Experiment], shown: bool | None = None) -> Iterator[Watch]:
    """One line per experiment. `watch(experiment, row)` is to be called with the figures of each evaluation."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda experiment, row: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    newest: dict[str, dict[str, Any]] = {}

    def table() -> Table:
        result = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("method", "step size", "seed", "epoch", "accuracy", "worst node", "loss", "consensus"):
            result.add_column(title, justify="left" if title == "method" else "right", no_wrap=True)
        for e in experiments:
            row = newest.get(e.id)
            figures = ["-"] * 5
            if row:
                figures = [
                    f"{row['epoch']:.1f}",
                    f"{100 * row['accuracy']:.1f}",
                    f"{100 * row['accuracy_min']:.1f}",
                    f"{row['loss']:.3f}",
                    f"{row['consensus_distance']:.2g}",
                ]
            result.add_row(e.label, f"{e.lr:g}", str(e.seed), *figures)
        return result

    with Live(table(), console=Console(stderr=True, force_terminal=shown), transient=True, auto_refresh=False) as live:

        def watch(experiment: Experiment, row: dict[str, Any]) -> None:
            newest[experiment.id] = row
            live.update(table(), refresh=True)

        yield watch
