"""Figures over the course of training, averaged over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gossamer.experiments.store import Row

MOST_POINTS = 200
"""A curve of more evaluations is thinned out to these; no screen shows more."""

_COLUMNS: dict[str, Callable[[Row], float | None]] = {
    "epoch": lambda row: row.get("epoch"),
    "bytes": lambda row: row.get("bytes_sent"),
    "seconds": lambda row: row.get("seconds"),
    "accuracy": lambda row: row.get("accuracy"),
    "averaged_accuracy": lambda row: row.get("averaged_accuracy"),
    "train_loss": lambda row: row.get("train_loss"),
    "node_spread": lambda row: row["accuracy_max"] - row["accuracy_min"] if "accuracy_max" in row else None,
    "consensus_distance": lambda row: row.get("consensus_distance"),
    "tracking_error": lambda row: row.get("tracking_error"),
}


@dataclass(frozen=True)
class Band:
    """One figure at every evaluation: mean and sample standard deviation over the seeds; nan where there is none."""

    mean: list[float]
    std: list[float]

    @property
    def exists(self) -> bool:
        """Whether there is anything to draw."""
        return bool(np.isfinite(self.mean).any())


def average(runs: Sequence[Sequence[Row]]) -> dict[str, Band]:
    """Every column's band over runs that differ in their seed; the k-th evaluations are averaged with each other.

    Runs of other length (unfinished ones) count as far as the shortest goes.
    """
    length = min(map(len, runs), default=0)
    shown = np.unique(np.linspace(0, length - 1, min(length, MOST_POINTS)).round().astype(int))
    kept = [[rows[k] for k in shown] for rows in runs]
    return {name: _band([[value(row) for row in rows] for rows in kept]) for name, value in _COLUMNS.items()}


def node_accuracy(runs: Sequence[Sequence[Row]]) -> list[float]:
    """The last accuracy of every node, averaged over the runs."""
    last = [rows[-1]["node_accuracy"] for rows in runs if rows and rows[-1].get("node_accuracy")]
    return [float(v) for v in np.mean(last, axis=0)] if last else []


def _band(values: list[list[float | None]]) -> Band:
    if not values or not values[0]:
        return Band([], [])
    table = np.array(values, dtype=float)
    std = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(table.shape[1])
    with np.errstate(invalid="ignore"):
        mean = table.mean(axis=0)
    return Band(mean.tolist(), std.tolist())
