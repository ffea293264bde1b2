"""What a partition is, and what all recipes for one share: the validation set, equal sizes, checks."""

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._common import plotting
from gossamer._common.checks import is_finite_number, whole_number
from gossamer._common.formatting import html_table
from gossamer.errors import InputError

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]

WIDEST_TABLE = 16
LONGEST_TABLE = 40


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of every node, as indices into the training set.

    `indices[i]`: node i's samples, ascending int64. `validation`: the samples kept for validation. `label_counts`:
    [nodes, classes], how many of each class a node holds. `recipe`: how it was made. Prints as a table.

    >>> import torch
    >>> from gossamer.data.partition import k_class
    >>> print(k_class(nodes=2, k=1, seed=0)(torch.arange(20) % 2))
    node  samples  class 0  1  distance
       0        9        9  -     0.500
       1        9        -  9     0.500
    18 samples on 2 nodes, 2 for validation; mean label distance 0.500 (0 = iid)
    """

    indices: list[Tensor]
    validation: Tensor
    label_counts: Tensor
    recipe: str = ""
    test: list[Tensor] = field(default_factory=list)
    """The samples that each node keeps for testing its own model; empty if there are none."""

    @property
    def sizes(self) -> list[int]:
        """How many samples each node holds."""
        return [len(own) for own in self.indices]

    @property
    def label_distances(self) -> Tensor:
        """Per node the total-variation distance 1/2 sum_c |p_i(c) - p(c)|, p being the labels of all nodes together.

        0: the node's labels are distributed like all labels; near 1: it has almost none of what the others hold.
        """
        counts = self.label_counts.double()
        own = counts / counts.sum(1, keepdim=True)
        whole = counts.sum(0) / counts.sum()
        return (own - whole).abs().sum(1) / 2

    @property
    def label_distance(self) -> float:
        """The mean of `label_distances` over the nodes: label heterogeneity in one number, 0 (iid) to below 1."""
        return float(self.label_distances.mean())

    def plot(self, path: str | Path | None = None, class_names: Sequence[str] | None = None) -> Any:
        """Draw one stacked bar per node, one colour per class, and return the matplotlib figure.

        With a path it goes into that .png, .svg or .pdf file, and the path is returned.
        """
        return plotting.plot("partition", self, path, class_names=class_names)

    def _repr_html_(self) -> str:
        if len(self) > LONGEST_TABLE:
            return f"<pre>{html.escape(str(self))}</pre>"
        return html_table(
            self._header(),
            [self._row(node) for node in range(len(self))],
            f"{self.recipe}: {sum(self.sizes)} samples on {len(self)} nodes, {len(self.validation)} for validation; "
            f"mean label distance {self.label_distance:.3f} (0 = iid)",
        )

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<Partition {self.recipe}: {sum(self.sizes)} samples, {len(self.validation)} for validation>"

    def __str__(self) -> str:
        rows = [self._header(), *(self._row(node) for node in range(min(len(self), LONGEST_TABLE)))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        if len(self) > LONGEST_TABLE:
            lines.append(
                f"... and {len(self) - LONGEST_TABLE} more nodes of {min(self.sizes)} to {max(self.sizes)} samples"
            )
        lines.append(
            f"{sum(self.sizes)} samples on {len(self)} nodes, {len(self.validation)} for validation"
            f"{f', {sum(map(len, self.test))} for the nodes to test on' if self.test else ''}; mean label distance "
            f"{self.label_distance:.3f} (0 = iid)"
        )
        return "\n".join(lines)

    def _header(self) -> list[str]:
        classes = self.label_counts.shape[1]
        labels = (
            [f"class {c}" if c == 0 else str(c) for c in range(classes)] if classes <= WIDEST_TABLE else ["classes"]
        )
        return ["node", "samples", *labels, "distance"]

    def _row(self, node: int) -> list[str]:
        counts = self.label_counts[node]
        per_class = [str(count or "-") for count in counts.tolist()]
        shown = per_class if len(per_class) <= WIDEST_TABLE else [str(int((counts > 0).sum()))]
        return [str(node), str(int(counts.sum())), *shown, f"{self.label_distances[node]:.3f}"]


class PartitionRecipe(ABC):
    """How to divide a training set among `nodes`. Applied to the targets, it gives a `Partition`.

    The same recipe on the same targets gives the same partition on every machine.

    >>> from gossamer.data.partition import iid
    >>> len(iid(nodes=4)([0, 1] * 10))
    4
    """

    nodes: int
    seed: int
    equal_sizes: bool
    by_class: ClassVar[bool] = True
    """Whether labels decide who holds what."""

    def __post_init__(self) -> None:
        if whole_number(self.nodes, "the number of nodes", least=None) < 1:
            raise InputError(f"A partition needs at least one node, not {self.nodes}.")
        if whole_number(self.seed, "a partition's seed", least=None) < 0:
            raise InputError(f"A partition's seed is a number 0 or above, not {self.seed}.")
        if not isinstance(self.equal_sizes, bool):
            raise InputError(f"A partition's equal_sizes is True or False, not {self.equal_sizes!r}.")

    @abstractmethod
    def divide(self, labels: Labels, holdout: float) -> tuple[Sequence[Indices], Indices]:
        """(each node's samples, validation samples) as indices into `labels`, in any order."""

    def __call__(
        self, targets: Tensor | Sequence[int] | Labels, holdout: float = 0.1, own_test: float = 0.0
    ) -> Partition:
        """Keep round(holdout * n) samples for validation (every class in proportion) and distribute the rest.

        Every node then keeps the share `own_test` of its samples, rounded up, to test its own model on.
        """
        labels = as_labels(targets)
        if not is_finite_number(holdout) or not 0 <= holdout < 1:
            raise InputError(f"holdout is the share of samples kept for validation, 0 <= holdout < 1, not {holdout!r}.")
        if not is_finite_number(own_test) or not 0 <= own_test < 1:
            raise InputError(
                f"own_test is the share of its samples that a node keeps to test on, 0 <= own_test < 1, "
                f"not {own_test!r}."
            )
        own, validation = self.divide(labels, holdout)
        refuse_empty(own)
        if self.equal_sizes:
            own = cut_to_smallest(own, labels, stream(self.seed, 2))
        test: list[Indices] = []
        if own_test:
            own, test = _apart(own, labels, own_test, stream(self.seed, 3))
            refuse_empty(own)
        refuse_lost_classes(own, labels)
        counts = [np.bincount(labels[indices], minlength=labels.max() + 1) for indices in own]
        return Partition(
            indices=[torch.from_numpy(np.sort(indices)) for indices in own],
            validation=torch.from_numpy(np.sort(validation)),
            label_counts=torch.from_numpy(np.stack(counts)),
            recipe=repr(self),
            test=[torch.from_numpy(np.sort(indices)) for indices in test],
        )


class DrawnRecipe(PartitionRecipe):
    """A recipe that first draws the validation set and then assigns the rest."""

    @abstractmethod
    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Each node's positions in `labels`, the labels of the samples to distribute."""

    def divide(self, labels: Labels, holdout: float) -> tuple[Sequence[Indices], Indices]:
        """Hold out, then assign."""
        rest, validation = hold_out(labels, holdout, self.seed)
        if self.nodes > len(rest):
            raise InputError(
                f"{len(rest)} samples cannot be divided among {self.nodes} nodes without an empty node: "
                "use fewer nodes, or a smaller holdout."
            )
        return [rest[positions] for positions in self.assign(labels[rest], stream(self.seed, 1))], validation


def hold_out(labels: Labels, holdout: float, seed: int) -> tuple[Indices, Indices]:
    """(samples to distribute, validation samples), both ascending."""
    order = proportional_order(labels, stream(seed, 0))
    kept = len(labels) - round(holdout * len(labels))
    return np.sort(order[:kept]), np.sort(order[kept:])


def stream(seed: int, purpose: int) -> np.random.Generator:
    """An independent generator for each purpose of a seed: 0 validation, 1 assignment, 2 equal sizes, 3 tests."""
    return np.random.default_rng([seed, purpose])


def as_array(values: Any) -> NDArray[Any]:
    """`values` as an array; an empty one of type object where numpy cannot make an array of numbers."""
    try:
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (ValueError, TypeError):  # ragged lists; a type that numpy does not have
        return np.empty(len(values), dtype=object)


def as_labels(targets: Tensor | Sequence[int] | Labels) -> Labels:
    """Class labels as an int64 array; raises unless there is one integer per sample, from 0 on."""
    labels = as_array(targets)
    if labels.ndim != 1 or len(labels) == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            "A partition by class needs one integer label per sample, "
            f"not targets of shape {labels.shape} and type {labels.dtype}."
        )
    if labels.min() < 0:
        raise InputError(f"Class labels count from 0, but the targets contain {labels.min()}.")
    return labels.astype(np.int64)


def proportional_order(labels: Labels, rng: np.random.Generator) -> Indices:
    """A random order of all positions, every prefix of which holds each class in proportion (to within one sample).

    The r-th sample of a class of n comes at time r / n, so the first samples of all classes come before everything
    else: a prefix as long as the number of classes already holds them all.
    """
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    time = rank / np.repeat(counts, counts)
    return by_class[np.lexsort((rng.random(len(labels)), time))]


def cut_to_smallest(own: Sequence[Indices], labels: Labels, rng: np.random.Generator) -> list[Indices]:
    """Every node keeps as many samples as the smallest node has, its classes in unchanged proportion."""
    smallest = min(len(indices) for indices in own)
    return [indices[proportional_order(labels[indices], rng)[:smallest]] for indices in own]


def _apart(
    own: Sequence[Indices], labels: Labels, share: float, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """(what every node trains on, the share of its samples that it tests on), its classes in proportion."""
    train, test = [], []
    for indices in own:
        ordered = indices[proportional_order(labels[indices], rng)]
        kept = len(ordered) - math.ceil(share * len(ordered))
        train.append(ordered[:kept])
        test.append(ordered[kept:])
    return train, test


def refuse_empty(own: Sequence[Indices]) -> None:
    """Raise if a node has nothing to train on."""
    for node, indices in enumerate(own):
        if len(indices) == 0:
            raise InputError(
                f"Node {node} would hold no samples, and a node cannot train on nothing: "
                "use fewer nodes, more samples or a smaller holdout."
            )


def refuse_lost_classes(own: Sequence[Indices], labels: Labels) -> None:
    """Raise if a class that occurs in `labels` is on no node."""
    lost = np.setdiff1d(labels, labels[np.concatenate(own)])
    if len(lost):
        raise InputError(
            f"Class {lost[0]} would be on no node, so no node could learn it: give its samples to a node, "
            "use more samples, a smaller holdout or equal_sizes=False, or remove the class from the data."
        )
