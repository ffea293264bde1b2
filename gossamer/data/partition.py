"""Who holds which samples: recipes for dividing labelled data among nodes.

A recipe says how to divide a training set; applied to the targets it gives a `Partition`:

>>> import torch
>>> recipe = k_class(nodes=4, k=2, seed=0)
>>> nodes = recipe(torch.arange(1000) % 5)
>>> len(nodes), len(nodes.validation), nodes.label_counts.shape
(4, 100, torch.Size([4, 5]))
>>> int((nodes.label_counts > 0).sum(1).max())
2

Recipes: `iid`, `k_class`, `dirichlet`, `shards`, `from_lists`, `from_function`. A share of every class (`holdout`,
10 %) is kept for validation first; which samples depends on the seed and the targets only, so all recipes with
one seed share the validation set. Every class that occurs has a holder and no node is empty, or an error says why it
cannot be. Recipes are lower-case classes, because they are called like functions.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer._common import checks
from gossamer._common.checks import is_finite_number, whole_number
from gossamer.data.paper_draws import SEEDS, check_paper_draw, paper_holders
from gossamer.data.partition_contract import (
    DrawnRecipe,
    Indices,
    Labels,
    Partition,
    PartitionRecipe,
    as_array,
    hold_out,
)
from gossamer.errors import InputError, unknown

__all__ = [
    "Partition",
    "PartitionRecipe",
    "dirichlet",
    "from_function",
    "from_lists",
    "get",
    "iid",
    "k_class",
    "names",
    "shards",
]

DIRICHLET_DRAWS = 10_000

IndexList = Sequence[int] | Tensor | Indices


@dataclass(frozen=True)
class iid(DrawnRecipe):
    """Samples are dealt at random, so every node holds every class in the same proportion on average.

    Sizes differ by at most one; `equal_sizes=True` drops that one.

    >>> iid(nodes=3)([0, 1] * 10).sizes
    [6, 6, 6]
    """

    by_class = False
    nodes: int
    seed: int = 0
    equal_sizes: bool = True

    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Deal a random permutation."""
        return np.array_split(rng.permutation(len(labels)), self.nodes)


@dataclass(frozen=True)
class k_class(DrawnRecipe):
    """Every node holds k random classes (the paper's "k-class" setting); each class is cut evenly among its holders.

    Every node draws k distinct classes uniformly. A class without a holder then replaces a random draw of a class that
    has several, and a class with more holders than samples passes some of them on to classes that have room.
    With `draw="balanced"` every class has as many holders as any other, to within one, so that no node has most of a
    class for itself. `draw="paper"` is that for 8 nodes and 10 classes, and with the seeds 0, 1 and 2 the very classes
    of the paper's experiments, from its authors' files.
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
    draw: Literal["free", "balanced", "paper"] = "free"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.k, "the number k of classes of a node", least=None)
        checks.check_choice("k_class", "draw", self.draw, ("free", "balanced", "paper"))
        if self.draw == "paper":
            check_paper_draw(self.nodes, self.k)

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
        if self.draw == "paper":
            check_paper_draw(self.nodes, self.k, len(counts))
            if self.seed < SEEDS:
                return paper_holders(self.k, self.seed)
        room = self._room(counts, rng)
        rows = np.stack([rng.permutation(len(counts)) for _ in range(self.nodes)])
        holds = rows < self.k
        while len(missing := np.flatnonzero(~holds.any(0))):
            # nodes * k >= classes and one class is missing, so another is held more than once.
            spare = np.argwhere(holds & (holds.sum(0) > 1))
            node, column = spare[rng.integers(len(spare))]
            holds[node, column] = False
            holds[node, missing[0]] = True
        while len(crowded := np.flatnonzero(holds.sum(0) > room)):
            for column, other in pairwise(_path_to_room(holds, crowded[0], room, rng)):
                node = rng.choice(np.flatnonzero(holds[:, column] & ~holds[:, other]))
                holds[node, column] = False
                holds[node, other] = True
        return holds

    def _room(self, counts: Labels, rng: np.random.Generator) -> Labels:
        """How many holders each class may have: as many as it has samples, or if balanced its share of all holders."""
        if self.draw == "free":
            return counts
        share, more = divmod(self.nodes * self.k, len(counts))
        room = np.full(len(counts), share)
        room[rng.permutation(len(counts))[:more]] += 1
        if (room > counts).any():
            raise InputError(
                f"Balanced classes would have {share} or {share + 1} holders each, but the smallest class has too few "
                f"samples for that ({counts.min()}): use a smaller k, fewer nodes or draw=free."
            )
        return room

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


def _path_to_room(holds: NDArray[np.bool_], start: int, room: Labels, rng: np.random.Generator) -> list[int]:
    """A shortest path of columns from `start` to one with room, on each step of which a node can change its class.

    There is one whenever `k_class.holders` is possible: the difference from a possible matrix contains such a path.
    """
    ways, reached = {start: [start]}, [start]
    for column in reached:
        if holds[:, column].sum() < room[column]:
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

    Small alpha: very different nodes; large alpha: nearly iid. The proportions are drawn again while a node would get
    fewer than `min_size` samples. Give your batch size as `min_size`, so that every node has a full batch; a recipe
    does not know it. Sizes differ; `equal_sizes=True` would throw most samples away, so it is off by default.

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


@dataclass(frozen=True, eq=False)
class from_lists(PartitionRecipe):
    """Node i holds the samples `lists[i]` (indices into the training set; no sample twice).

    The validation set is `validation` if given. Otherwise it is drawn as in every recipe and its samples are taken
    out of the lists; apply the recipe with `holdout=0` to keep the lists whole.

    >>> import torch
    >>> from_lists([[0, 2], [1, 3]])(torch.tensor([0, 0, 1, 1]), holdout=0).indices
    [tensor([0, 2]), tensor([1, 3])]
    """

    by_class = False
    lists: Sequence[IndexList] = field(repr=False)
    validation: IndexList | None = field(default=None, repr=False)
    seed: int = 0
    equal_sizes: bool = False
    nodes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lists", _listed(self.lists, "A partition from lists is made of"))
        object.__setattr__(self, "nodes", len(self.lists))
        super().__post_init__()

    def divide(self, labels: Labels, holdout: float) -> tuple[Sequence[Indices], Indices]:
        """The checked lists without the validation samples; and those."""
        if self.validation is not None:
            *own, validation = _checked([*self.lists, self.validation], len(labels))
            return own, validation
        own = _checked(self.lists, len(labels))
        _, validation = hold_out(labels, holdout, self.seed)
        return [np.setdiff1d(indices, validation) for indices in own], validation


@dataclass(frozen=True)
class from_function(DrawnRecipe):
    """`function(labels, nodes, rng)` returns one list of positions in `labels` per node.

    `labels` is the int64 array of the labels to distribute (validation already taken out) and `rng` a numpy
    generator made from the seed: draw from it only, and the partition is reproducible.

    >>> import torch
    >>> def by_parity(labels, nodes, rng):
    ...     return [np.flatnonzero(labels % 2 == node) for node in range(nodes)]
    >>> from_function(by_parity, nodes=2)(torch.arange(40) % 4).label_counts
    tensor([[9, 0, 9, 0],
            [0, 9, 0, 9]])
    """

    function: Callable[[Labels, int, np.random.Generator], Iterable[IndexList]] = field(repr=False)
    nodes: int
    seed: int = 0
    equal_sizes: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise InputError(
                "A partition from a function needs a function of (labels, nodes, rng), "
                f"not an object of type {type(self.function).__name__}."
            )

    def assign(self, labels: Labels, rng: np.random.Generator) -> Sequence[Indices]:
        """Call the function and check its answer."""
        lists = _listed(self.function(labels, self.nodes, rng), "A partition function returns")
        if len(lists) != self.nodes:
            raise InputError(
                f"The partition function gave {len(lists)} lists for {self.nodes} nodes: give one per node."
            )
        return _checked(lists, len(labels))


def _listed(lists: Iterable[IndexList], what: str) -> list[IndexList]:
    """`lists` as a list; raises unless it has an order, that of the nodes."""
    ordered = isinstance(lists, Iterable) and not isinstance(lists, str | Mapping | Set)
    if not ordered or getattr(lists, "ndim", 1) == 0:
        raise InputError(
            f"{what} one list of samples per node, such as [[0, 2], [1, 3]], "
            f"not an object of type {type(lists).__name__}."
        )
    return list(lists)


def _checked(lists: Sequence[IndexList], samples: int) -> list[Indices]:
    """The lists as int64 arrays; raises unless they are disjoint and within 0..samples-1."""
    arrays = []
    for number, indices in enumerate(lists):
        array = as_array(indices)
        if array.ndim != 1 or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
            raise InputError(
                f"List {number} of a partition must be a flat list of integers, "
                f"not of shape {array.shape} and type {array.dtype}."
            )
        outside = array[(array < 0) | (array >= samples)]
        if outside.size:
            raise InputError(
                f"List {number} of a partition names sample {outside[0]}, but the samples are 0 to {samples - 1}."
            )
        arrays.append(array.astype(np.int64))
    times = np.bincount(np.concatenate(arrays), minlength=samples)
    if times.max() > 1:
        raise InputError(
            f"Sample {times.argmax()} is listed {times.max()} times in a partition: every sample has one place."
        )
    return arrays


_BY_NAME: dict[str, Callable[..., PartitionRecipe]] = {
    "iid": iid,
    "k-class": k_class,
    "dirichlet": dirichlet,
    "shards": shards,
}


def names() -> list[str]:
    """The names that `get` knows.

    >>> names()
    ['iid', 'k-class', 'dirichlet', 'shards']
    """
    return list(_BY_NAME)


def get(spec: str, nodes: int, seed: int = 0) -> PartitionRecipe:
    """The recipe that `spec` describes: a name with parameters after a colon.

    >>> get("k-class:k=4", nodes=8)
    k_class(nodes=8, k=4, seed=0, equal_sizes=True, draw='free')
    >>> get("dirichlet:alpha=0.1,min_size=20", nodes=8, seed=3)
    dirichlet(nodes=8, alpha=0.1, seed=3, min_size=20, equal_sizes=False)
    """
    given_name, rest = checks.split(spec)
    name = checks.normalized(given_name)
    if name not in _BY_NAME:
        raise unknown("partition", given_name, _BY_NAME)
    build = _BY_NAME[name]
    given = {"nodes": nodes, "seed": seed, **checks.parameters("partition", name, build, rest, given=("nodes",))}
    return build(**given)
