"""The standard ways to divide labelled data. Lower-case classes, because they are called like functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gossamer._common.checks import is_finite_number, whole_number
from gossamer.data.partition.recipe import DrawnRecipe, Indices, Labels
from gossamer.errors import InputError

DIRICHLET_DRAWS = 10_000


@dataclass(frozen=True)
class iid(DrawnRecipe):
    """Samples are dealt at random, so every node holds every class in the same proportion on average.

    Sizes differ by at most one; `equal_sizes=True` drops that one.

    >>> iid(nodes=3)([0, 1] * 10).sizes
    [6, 6, 6]
    """

    nodes: int
    seed: int = 0
    equal_sizes: bool = True

    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Deal a random permutation."""
        return np.array_split(rng.permutation(len(labels)), self.nodes)


@dataclass(frozen=True)
class k_class(DrawnRecipe):
    """Every node holds k random classes (the paper's "k-class" setting); each class is cut evenly among its holders.

    Every node draws k distinct classes uniformly; while a class has no holder, it takes the place of a random draw
    of a class that has several, and a class with more holders than samples gives some up to classes that have room.
    `equal_sizes=True` (the paper's experiments) then cuts every node to the size of the smallest;
    `equal_sizes=False` uses every sample, and a node with unpopular classes holds more.

    >>> import torch
    >>> k_class(nodes=3, k=1, seed=0)(torch.arange(90) % 3, holdout=0).label_counts.sum(0)
    tensor([30, 30, 30])
    """

    nodes: int
    k: int
    seed: int = 0
    equal_sizes: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.k, "the number k of classes of a node", least=None)

    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Draw the holders, then cut each class."""
        classes, counts = np.unique(labels, return_counts=True)
        holds = self.holders(counts, rng)
        own: list[list[Indices]] = [[] for _ in range(self.nodes)]
        for column, label in enumerate(classes):
            samples = rng.permutation(np.flatnonzero(labels == label))
            holders = rng.permutation(np.flatnonzero(holds[:, column]))
            for node, part in zip(holders, np.array_split(samples, len(holders)), strict=True):
                own[node].append(part)
        return [np.concatenate(parts) for parts in own]

    def holders(self, counts: Labels, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Who holds which class: a random boolean matrix [nodes, classes], given how many samples each class has.

        Every row has k ones; every column has at least one, and no more than the class has samples.
        """
        self._refuse_impossible(counts)
        rows = np.stack([rng.permutation(len(counts)) for _ in range(self.nodes)])
        holds = rows < self.k
        while len(missing := np.flatnonzero(~holds.any(0))):
            # nodes * k >= classes and one class is missing, so another is held more than once.
            spare = np.argwhere(holds & (holds.sum(0) > 1))
            node, column = spare[rng.integers(len(spare))]
            holds[node, column] = False
            holds[node, missing[0]] = True
        while len(crowded := np.flatnonzero(holds.sum(0) > counts)):
            for column, other in pairwise(_way_out(holds, crowded[0], counts, rng)):
                node = rng.choice(np.flatnonzero(holds[:, column] & ~holds[:, other]))
                holds[node, column] = False
                holds[node, other] = True
        return holds

    def _refuse_impossible(self, counts: Labels) -> None:
        """Raise unless there is a matrix as `holders` promises; these three conditions are all it needs."""
        classes = len(counts)
        if not 1 <= self.k <= classes:
            raise InputError(f"A node can hold between 1 and all {classes} classes of these targets, not k={self.k}.")
        if self.nodes * self.k < classes:
            raise InputError(
                f"{self.nodes} nodes with {self.k} classes each cannot hold all {classes} classes: "
                f"use k >= {math.ceil(classes / self.nodes)} or at least {math.ceil(classes / self.k)} nodes."
            )
        places = np.minimum(counts, self.nodes).sum()
        if places < self.nodes * self.k:
            raise InputError(
                f"{self.nodes} nodes cannot hold {self.k} classes each, because a class has no more holders than "
                f"samples to distribute and the smallest class has {counts.min()}: there is room for {places} of the "
                f"{self.nodes * self.k} holders; use a smaller k, fewer nodes, more samples or a smaller holdout."
            )


def _way_out(holds: NDArray[np.bool_], start: int, counts: Labels, rng: np.random.Generator) -> list[int]:
    """A shortest way of columns from `start` to one with room, on each step of which a node can change its class.

    There is one whenever `k_class.holders` is possible: what differs from a possible matrix contains such a way.
    """
    ways, reached = {start: [start]}, [start]
    for column in reached:
        if holds[:, column].sum() < counts[column]:
            break
        open_to = (holds[:, [column]] & ~holds).any(0)
        for other in rng.permutation(np.flatnonzero(open_to)):
            if other not in ways:
                ways[other] = [*ways[column], other]
                reached.append(other)
    return ways[column]


@dataclass(frozen=True)
class dirichlet(DrawnRecipe):
    """Each class is divided among the nodes in proportions drawn from Dirichlet(alpha, ..., alpha).

    Small alpha: very different nodes; large alpha: nearly iid. Drawn again while a node would get fewer than
    `min_size` samples. A recipe does not know how it will be trained on: give your batch size, so that every node has
    a full batch; the 100 stay 100 whatever the batch. Sizes differ, and `equal_sizes=True` would throw most
    samples away, so it is off unless asked for.

    >>> import torch
    >>> dirichlet(nodes=3, alpha=1.0, min_size=10)(torch.arange(200) % 4, holdout=0).label_counts.sum()
    tensor(200)
    """

    nodes: int
    alpha: float
    seed: int = 0
    min_size: int = 100
    equal_sizes: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_finite_number(self.alpha) or not self.alpha > 0:
            raise InputError(f"Dirichlet's alpha must be positive and finite, not {self.alpha!r}.")
        if whole_number(self.min_size, "the min_size of a node", least=None) < 1:
            raise InputError(f"min_size must be at least 1, because no node may be empty, not {self.min_size}.")

    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Draw the proportions, then cut each class at their cumulative sums."""
        classes, counts = np.unique(labels, return_counts=True)
        ends = self.cuts(counts, rng)
        own: list[list[Indices]] = [[] for _ in range(self.nodes)]
        for label, end in zip(classes, ends, strict=True):
            samples = rng.permutation(np.flatnonzero(labels == label))
            for node, part in enumerate(np.split(samples, end[:-1])):
                own[node].append(part)
        return [np.concatenate(parts) for parts in own]

    def cuts(self, counts: Labels, rng: np.random.Generator) -> NDArray[np.int64]:
        """Where each node's part of each class ends [classes, nodes]."""
        if self.nodes * self.min_size > counts.sum():
            raise InputError(
                f"{counts.sum()} samples cannot give each of {self.nodes} nodes the {self.min_size} that min_size asks "
                "for: lower min_size (and the batch size) or use fewer nodes."
            )
        for _ in range(DIRICHLET_DRAWS):
            proportions = rng.dirichlet(np.full(self.nodes, self.alpha), size=len(counts))
            ends = np.rint(np.cumsum(proportions, axis=1) * counts[:, None]).astype(np.int64)
            ends[:, -1] = counts
            if np.diff(ends, axis=1, prepend=0).sum(0).min() >= self.min_size:
                return ends
        raise InputError(
            f"None of {DIRICHLET_DRAWS} draws with alpha={self.alpha} gave each of {self.nodes} nodes at least "
            f"{self.min_size} samples: raise alpha, lower min_size (and the batch size) or use fewer nodes."
        )


@dataclass(frozen=True)
class shards(DrawnRecipe):
    """Sort by class, cut into nodes * per_node equal shards and deal every node `per_node` of them at random.

    A node then sees about `per_node` classes. Sizes differ by at most `per_node`; `equal_sizes=True` drops those.

    >>> import torch
    >>> shards(nodes=5, per_node=2, seed=0)(torch.arange(100) % 10, holdout=0).sizes
    [20, 20, 20, 20, 20]
    """

    nodes: int
    per_node: int = 2
    seed: int = 0
    equal_sizes: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole_number(self.per_node, "the number of shards per node", least=None) < 1:
            raise InputError(f"Every node needs at least one shard, not per_node={self.per_node}.")

    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Sort (random order inside a class), cut, deal."""
        count = self.nodes * self.per_node
        if count > len(labels):
            raise InputError(
                f"{len(labels)} samples cannot be cut into {count} shards: use fewer nodes or fewer shards per node."
            )
        shuffled = rng.permutation(len(labels))
        pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], count)
        dealt = rng.permutation(count).reshape(self.nodes, self.per_node)
        return [np.concatenate([pieces[shard] for shard in hand]) for hand in dealt]
