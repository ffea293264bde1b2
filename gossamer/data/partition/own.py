"""A division of the user's own, by lists or by a function."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from gossamer.data.partition.recipe import DrawnRecipe, Indices, Labels, Recipe, as_array, hold_out
from gossamer.errors import InputError

IndexList = Sequence[int] | Tensor | Indices


@dataclass(frozen=True, eq=False)
class from_lists(Recipe):
    """Node i holds the samples `lists[i]` (indices into the training set; no sample twice).

    The validation set is `validation` if given. Otherwise it is drawn as in every recipe and its samples are taken
    out of the lists; apply the recipe with `holdout=0` to keep the lists whole.

    >>> import torch
    >>> from_lists([[0, 2], [1, 3]])(torch.tensor([0, 0, 1, 1]), holdout=0).indices
    [tensor([0, 2]), tensor([1, 3])]
    """

    lists: Sequence[IndexList] = field(repr=False)
    validation: IndexList | None = field(default=None, repr=False)
    seed: int = 0
    equal_sizes: bool = False
    nodes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lists", listed(self.lists, "A partition from lists is made of"))
        object.__setattr__(self, "nodes", len(self.lists))
        super().__post_init__()

    def divide(self, labels: Labels, holdout: float) -> tuple[Sequence[Indices], Indices]:
        """The checked lists without the validation samples; and those."""
        if self.validation is not None:
            *own, validation = checked([*self.lists, self.validation], len(labels))
            return own, validation
        own = checked(self.lists, len(labels))
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
        lists = listed(self.function(labels, self.nodes, rng), "A partition function returns")
        if len(lists) != self.nodes:
            raise InputError(
                f"The partition function gave {len(lists)} lists for {self.nodes} nodes: give one per node."
            )
        return checked(lists, len(labels))


def listed(lists: Iterable[IndexList], what: str) -> list[IndexList]:
    """`lists` as a list; raises unless it can be gone through in the order of the nodes."""
    ordered = isinstance(lists, Iterable) and not isinstance(lists, str | Mapping | Set)
    if not ordered or getattr(lists, "ndim", 1) == 0:
        raise InputError(
            f"{what} one list of samples per node, such as [[0, 2], [1, 3]], "
            f"not an object of type {type(lists).__name__}."
        )
    return list(lists)


def checked(lists: Sequence[IndexList], samples: int) -> list[Indices]:
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
