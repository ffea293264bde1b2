"""The figures of one evaluation, named and ordered in one place, whoever measured them."""

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""Figures by name: numbers, None where there is nothing to measure, and lists with a number per node."""


@dataclass(frozen=True)
class Scores:
    """Accuracy and mean loss of each of several models on one set of samples."""

    accuracy: list[float]
    loss: list[float]


def row_of(
    *,
    round: int,
    rounds_per_epoch: int,
    lr: float,
    test: Scores | None,
    validation_accuracy: list[float] | None,
    train_loss: float | None,
    consensus_distance: float,
    tracking_error: float | None,
    gradient_norm: float | None,
    bytes_sent: float,
    samples_per_second: float | None,
    seconds: float,
) -> Row:
    """A row after `round` rounds.

    `test` scores every node's model and, last, the averaged one; without a test set its figures are None.
    `validation_accuracy` is that of every node's model; where it was not measured, there is no such figure.
    """
    accuracy, loss = (test.accuracy, test.loss) if test else (None, None)
    row: Row = {
        "round": round,
        "epoch": round / rounds_per_epoch,
        "lr": lr,
        **spread("accuracy", accuracy and accuracy[:-1]),
        **spread("loss", loss and loss[:-1]),
        "node_accuracy": accuracy and accuracy[:-1],
        "node_loss": loss and loss[:-1],
        "averaged_accuracy": accuracy and accuracy[-1],
        "averaged_loss": loss and loss[-1],
        "train_loss": train_loss,
        "consensus_distance": consensus_distance,
        "tracking_error": tracking_error,
        "gradient_norm": gradient_norm,
        "bytes_sent": bytes_sent,
        "samples_per_second": samples_per_second,
        "seconds": seconds,
    }
    if validation_accuracy is not None:
        row["validation_accuracy"] = _mean(validation_accuracy)
    return row


def spread(name: str, values: list[float] | None) -> dict[str, float | None]:
    """Mean, smallest and largest over the nodes, as figures of a row.

    >>> spread("loss", [1.0, 3.0])
    {'loss': 2.0, 'loss_min': 1.0, 'loss_max': 3.0}
    >>> spread("loss", None)
    {'loss': None, 'loss_min': None, 'loss_max': None}
    """
    if values is None:
        return dict.fromkeys((name, f"{name}_min", f"{name}_max"))
    return {name: _mean(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
