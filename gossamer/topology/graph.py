"""An undirected graph: who can talk to whom, without weights."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gossamer._common.checks import node_count
from gossamer.errors import InputError
from gossamer.topology.csr import Ints, frozen, row_pointers
from gossamer.topology.distance import diameter, distances


class Graph:
    """An immutable undirected graph of the nodes 0 to n-1.

    `edges` is any list of pairs; their order does not matter and repeated edges count once. `labels` gives the nodes
    names. A node is never joined to itself: its own weight is the business of the mixing weights.

    >>> square = Graph(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    >>> square.neighbours(0).tolist(), square.diameter
    ([1, 3], 2)
    """

    n: int
    edges: Ints
    """[E, 2], each row i < j, rows sorted and unique."""
    labels: tuple[str, ...] | None
    indptr: Ints
    indices: Ints
    """Compressed rows: the neighbours of node i are indices[indptr[i] : indptr[i+1]]."""

    def __init__(self, n: int, edges: npt.ArrayLike = (), labels: Sequence[str] | None = None) -> None:
        self.n = node_count(n)
        self.edges = _tidy(self.n, edges)
        self.labels = checked_labels(self.n, labels)
        i, j = self.edges.T
        rows, self.indices = np.divmod(np.sort(np.concatenate([i * self.n + j, j * self.n + i])), self.n)
        self.indptr = row_pointers(rows, self.n)
        for array in (self.edges, self.indptr, self.indices):
            frozen(array)

    def neighbours(self, i: int) -> Ints:
        """The nodes joined to node i, ascending."""
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    @cached_property
    def degrees(self) -> Ints:
        """The number of neighbours of every node."""
        degrees = np.diff(self.indptr)
        frozen(degrees)
        return degrees

    @cached_property
    def unreachable(self) -> int | None:
        """The first node that no path joins to node 0, or None if there is none."""
        hops = distances(self.indptr.tolist(), self.indices.tolist(), 0)
        return hops.index(-1) if -1 in hops else None

    @property
    def is_connected(self) -> bool:
        """Whether a path joins every two nodes."""
        return self.unreachable is None

    @property
    def is_tree(self) -> bool:
        """Whether exactly one path joins every two nodes."""
        return len(self.edges) == self.n - 1 and self.is_connected

    @property
    def is_regular(self) -> bool:
        """Whether all nodes have the same number of neighbours."""
        return bool(np.all(self.degrees == self.degrees[0]))

    @cached_property
    def diameter(self) -> int:
        """The largest number of edges on a shortest path between two nodes."""
        if not self.is_connected:
            raise InputError(
                f"The graph has no diameter because no path joins node 0 and node {self.unreachable}; "
                f"add edges until it is connected."
            )
        return diameter(self.indptr, self.indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.n == other.n and self.labels == other.labels and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.n, self.labels, self.edges.tobytes()))

    def __repr__(self) -> str:
        return f"Graph(n={self.n}, edges={len(self.edges)})"


def checked_labels(n: int, labels: Sequence[str] | None) -> tuple[str, ...] | None:
    """`labels` as a tuple of n different names, or None."""
    if labels is None:
        return None
    names = tuple(str(label) for label in labels)
    if len(names) != n or len(set(names)) != n:
        raise InputError(f"{n} nodes need {n} different names, not {len(names)} of which {len(set(names))} differ.")
    return names


def _tidy(n: int, edges: npt.ArrayLike) -> Ints:
    """Edges as [E, 2] with i < j, sorted, each once."""
    pairs = np.asarray(edges)
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError(
            f"Edges must be pairs of node numbers, not an array of shape {pairs.shape} and type {pairs.dtype}."
        )
    low, high = pairs.min(axis=1).astype(np.int64), pairs.max(axis=1).astype(np.int64)
    if low.min() < 0 or high.max() >= n:
        outside = int(low.min() if low.min() < 0 else high.max())
        raise InputError(f"An edge names node {outside}, but the {n} nodes are numbered from 0 to {n - 1}.")
    if np.any(low == high):
        raise InputError(
            f"Node {low[low == high][0]} is joined to itself; "
            f"leave self-loops out, because every node always keeps a share of its own vector."
        )
    keys = np.unique(low * n + high)
    return np.stack([keys // n, keys % n], axis=1)
