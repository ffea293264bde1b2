"""Figures over the course of training, averaged over seeds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer._common.metrics import Row

FloatArray = NDArray[np.float64]

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
    """One figure in the course of training: mean and sample standard deviation over seeds; nan where there is none."""

    mean: list[float]
    std: list[float]

    @property
    def exists(self) -> bool:
        """Whether there is anything to draw."""
        return bool(np.isfinite(self.mean).any())


def average(runs: Sequence[Sequence[Row]], finished: bool = True) -> dict[str, Band]:
    """Every column's band over runs that differ in their seed.

    Seeds deal out the data anew, so an epoch has other numbers of rounds and evaluations fall on other places.
    Therefore every run is read, on straight lines between its evaluations, at the evaluations of the one that ends
    first: finished runs at the same share of their whole, others at the same epoch, as far as the shortest goes.
    """
    kept = [rows for rows in runs if rows]
    along = [_places(rows, finished) for rows in kept]
    common = _thinned(min(along, key=lambda places: places[-1], default=np.empty(0)))
    pairs = list(zip(along, kept, strict=True))
    return {
        name: _band([np.interp(common, places, _numbers(rows, value)) for places, rows in pairs])
        for name, value in _COLUMNS.items()
    }


def at_the_end(runs: Sequence[Sequence[Row]], column: str) -> float:
    """A column's last figure of every run, averaged over the runs; nan where one has none."""
    last = [_numbers(rows[-1:], _COLUMNS[column])[0] for rows in runs if rows]
    return float(np.mean(last)) if last else math.nan


def node_accuracy(runs: Sequence[Sequence[Row]]) -> list[float]:
    """The last accuracy of every node, averaged over the runs."""
    last = [rows[-1]["node_accuracy"] for rows in runs if rows and rows[-1].get("node_accuracy")]
    return [float(v) for v in np.mean(last, axis=0)] if last else []


def _places(rows: Sequence[Row], finished: bool) -> FloatArray:
    """Where the evaluations are: the share of the whole run, or the epoch."""
    epochs = np.array([row["epoch"] for row in rows], dtype=float)
    # Rounded, so that places which are equal but for the last bit are the same place.
    return np.round(epochs / (epochs[-1] or 1.0), 12) if finished else epochs


def _thinned(places: FloatArray) -> FloatArray:
    chosen = np.linspace(0, len(places) - 1, min(len(places), MOST_POINTS)).round().astype(int)
    return np.take(places, chosen)


def _numbers(rows: Sequence[Row], value: Callable[[Row], float | None]) -> FloatArray:
    return np.array([value(row) for row in rows], dtype=float)


def _band(values: list[FloatArray]) -> Band:
    if not values:
        return Band([], [])
    table = np.array(values)
    with np.errstate(invalid="ignore"):
        mean = table.mean(axis=0)
        std = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(len(mean))
    return Band(mean.tolist(), std.tolist())
