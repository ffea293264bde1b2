"""What is measured in a run: the figures of one evaluation, how they are computed, and their history."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer._common.formatting import Row, html_table, word
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.methods.compressed import REBUILD
from gossamer.topology import Topology

_LONGEST_TABLE = 11


class History:
    """One row of figures for each evaluation, oldest first.

    >>> history = History([{"round": 0, "accuracy": 0.1}, {"round": 10, "accuracy": 0.6}])
    >>> history["accuracy"]
    [0.1, 0.6]
    """

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows: list[Row] = rows or []

    def __repr__(self) -> str:
        rounds = f", rounds {self.rows[0]['round']} to {self.rows[-1]['round']}" if self.rows else ""
        return f"History({len(self.rows)} evaluations{rounds})"

    def _repr_html_(self) -> str:
        shown = [*self.rows[:1], *self.rows[1:][-_LONGEST_TABLE:]]
        names = [key for key in dict.fromkeys(key for row in shown for key in row) if not key.startswith("node_")]
        told = f"{self!r}; shown are the first and the last {_LONGEST_TABLE}" if len(shown) < len(self) else repr(self)
        return html_table(names, [[_figure(row.get(name)) for name in names] for row in shown], told)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> list[Any]:
        """One figure over all evaluations; None where it was not measured (the validation set: only at the end)."""
        known = dict.fromkeys(key for row in self.rows for key in row)
        if self.rows and name not in known:
            raise KeyError(f"no figure '{name}'; there are {', '.join(known)}")
        return [row.get(name) for row in self.rows]

    def put(self, row: Row) -> None:
        """Add a row. It replaces an earlier one of the same round, but keeps the figures that it lacks.

        >>> history = History([{"round": 10, "loss": 0.5, "train_loss": 0.4}])
        >>> history.put({"round": 10, "loss": 0.5, "train_loss": None})
        >>> history.rows
        [{'round': 10, 'loss': 0.5, 'train_loss': 0.4}]
        """
        if self.rows and self.rows[-1]["round"] == row["round"]:
            old = self.rows.pop()
            row.update({name: value for name, value in old.items() if row.get(name) is None})
        self.rows.append(row)

    @property
    def last(self) -> Row:
        """The newest row."""
        if not self.rows:
            raise InputError("Nothing has been evaluated yet, so there is no last row.")
        return self.rows[-1]

    def to_jsonl(self, path: Path | str) -> None:
        """Write one JSON object per line. Numbers that are not finite become null, because JSON has none."""
        from gossamer._common.files import to_json, write_text

        write_text(Path(path), "".join(to_json(row) + "\n" for row in self.rows))

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per evaluation (pip install 'gossamer[data]')."""
        try:
            import pandas
        except ImportError:
            raise InputError("A DataFrame needs pandas; run: pip install 'gossamer[data]'.") from None
        return pandas.DataFrame(self.rows)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else word(value)


@dataclass(frozen=True)
class Scores:
    """Metric and mean loss of each of several models."""

    metric: list[float]
    loss: list[float]


def row_of(
    *,
    round: int,
    rounds_per_epoch: int,
    lr: float,
    test: Scores,
    test_samples: int,
    validation: list[float] | None,
    train_loss: float | None,
    consensus_distance: float,
    tracking_error: float | None,
    gradient_norm: float | None,
    bytes_sent: float,
    samples_per_second: float | None,
    seconds: float,
    metric: str = "accuracy",
) -> Row:
    """The row of an evaluation after `round` rounds, the same for simulated and for real nodes.

    `test` scores every node's model and, last, the averaged one, on `test_samples` samples.
    `validation` is every node's metric on the validation set; where it was not measured, there is no such figure. The
    figures are named after the metric: "accuracy", "accuracy_min", "accuracy_max", "node_accuracy", ...
    """
    measured, loss = test.metric, test.loss
    row: Row = {
        "round": round,
        "epoch": round / rounds_per_epoch,
        "lr": lr,
        "test_samples": test_samples,
        **_spread(metric, measured[:-1]),
        **_spread("loss", loss[:-1]),
        f"node_{metric}": measured[:-1],
        "node_loss": loss[:-1],
        f"averaged_{metric}": measured[-1],
        "averaged_loss": loss[-1],
        "train_loss": train_loss,
        "consensus_distance": consensus_distance,
        "tracking_error": tracking_error,
        "gradient_norm": gradient_norm,
        "bytes_sent": bytes_sent,
        "samples_per_second": samples_per_second,
        "seconds": seconds,
    }
    if validation is not None:
        row[f"validation_{metric}"] = _mean(validation)
    return row


def _spread(name: str, values: list[float]) -> dict[str, float]:
    """Mean, smallest and largest over the nodes, as figures of a row."""
    return {name: _mean(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


class Meter:
    """The training loss of some nodes since the last evaluation, and their speed since the start.

    >>> meter = Meter(nodes=2)
    >>> meter.add(torch.tensor([1.0, 3.0]), samples=20, seconds=0.5)
    >>> meter.train_loss, meter.samples_per_second
    (2.0, 40.0)
    """

    def __init__(self, nodes: int) -> None:
        self._loss = torch.zeros(nodes, dtype=torch.float64)
        self._rounds = 0
        self._samples = 0
        self.seconds = 0.0

    def add(self, losses: Tensor, samples: int, seconds: float) -> None:
        """Note a round: every node's loss, and all nodes' samples and time."""
        self._loss += losses
        self._rounds += 1
        self._samples += samples
        self.seconds += seconds

    @property
    def train_loss(self) -> float | None:
        """The mean loss over nodes and rounds since the last evaluation; None before the first round."""
        return float(self._loss.mean()) / self._rounds if self._rounds else None

    @property
    def samples_per_second(self) -> float | None:
        """All samples over all time; None before the first round."""
        return self._samples / self.seconds if self.seconds else None

    def regroup(self, nodes: int) -> None:
        """Go on with so many nodes."""
        self._loss = self._loss.mean().expand(nodes).clone()

    def forget_losses(self) -> None:
        """Reset the training loss after an evaluation."""
        self._loss.zero_()
        self._rounds = 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"loss": self._loss, "rounds": self._rounds, "samples": self._samples, "seconds": self.seconds}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self._loss.copy_(saved["loss"])
        self._rounds, self._samples = int(saved["rounds"]), int(saved["samples"])
        self.seconds = float(saved["seconds"])
        float(self._rounds), float(self._samples)  # raises here if they are larger than any run's


_WITHOUT_FLOAT64 = {"mps"}


def consensus_distance(x: Tensor) -> float:
    """(1/N) sum_i |x_i - xbar|^2: how far apart the rows of x are, summed in float64 where the device has it."""
    mean = x.mean(0)
    differences = (row - mean for row in x)
    if x.device.type not in _WITHOUT_FLOAT64:
        differences = (difference.double() for difference in differences)
    return float(sum(difference.square().sum() for difference in differences) / len(x))


def bytes_per_node(method: Method, topology: Topology, dim: int, width: int, rounds: int) -> float:
    """What a node has sent after `rounds` rounds, the mean over the nodes.

    In every `facts.every`-th round a method sends `facts.sends` vectors of `dim` numbers over every edge, `width` bytes
    for each number or what its compressor makes of them; what is compressed is sent as it is, in float64, every
    `REBUILD` steps. An all-reduce counts as a ring all-reduce does: 2 (N - 1)/N vectors for each node;
    `facts.starts_with_all_reduce` adds one to the first round. What a method that overlaps sends in a round is mixed
    with the weights of the next.
    """
    facts, whole_vector = method.facts, dim * width
    all_reduce = 2 * (topology.n - 1) / topology.n * whole_vector
    if facts.sends == "all-reduce":
        return rounds * all_reduce
    # Every entry of W beside a node's own is one message.
    edges = [(len(mixing.indices) - mixing.n) / mixing.n for mixing in topology.mixings]
    exchanges = rounds // facts.every
    weights_of = [
        edges[(k * facts.every - 1 + facts.overlaps) % topology.period] for k in range(1, topology.period + 1)
    ]
    whole, rest = divmod(exchanges, topology.period)
    messages = whole * sum(weights_of) + sum(weights_of[:rest])
    vectors = messages * whole_vector
    if facts.compresses:
        vectors = messages * method.compressor.bytes(dim, width)
        vectors += exchanges // REBUILD * edges[0] * (8 * dim - method.compressor.bytes(dim, width))
    return facts.sends * vectors + (all_reduce if rounds and facts.starts_with_all_reduce else 0.0)
