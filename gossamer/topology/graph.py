"""An undirected graph without weights, its distances, and the compressed sparse rows in which it is stored.

Compressed sparse rows: row i owns the positions indptr[i] to indptr[i+1] of `indices`, columns ascending.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gossamer._common.checks import node_count
from gossamer.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SWEEPS = 16  # searches spent on bounds before all remaining nodes are searched at once
BLOCK = 512  # sources that are searched at once, one bit each


class Graph:
    """An immutable undirected graph of the nodes 0 to n-1.

    `edges` is any list of pairs; their order does not matter and repeated edges count once. `labels` gives the nodes
    names. A node is never joined to itself: its own weight belongs to the mixing weights.

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


def distances(indptr: list[int], indices: list[int], source: int) -> list[int]:
    """Breadth-first search: the number of edges from `source` to every node, -1 where there is no path."""
    n = len(indptr) - 1
    found = [-1] * n
    found[source] = 0
    queue = [source]
    for i in queue:  # the queue grows while it is read
        if len(queue) == n:
            break
        step = found[i] + 1
        for j in indices[indptr[i] : indptr[i + 1]]:
            if found[j] < 0:
                found[j] = step
                queue.append(j)
    return found


def diameter(indptr: Ints, indices: Ints) -> int:
    """The exact diameter of a connected undirected graph.

    A circulant graph looks the same from every node: one search. Otherwise each search from u, of eccentricity e(u),
    bounds the eccentricity of every v by max(d(u, v), e(u) - d(u, v)) <= e(v) <= e(u) + d(u, v); nodes whose upper
    bound does not exceed the largest distance seen so far cannot matter. What a few searches leave open is settled by
    searching from all remaining nodes at once.
    """
    n = len(indptr) - 1
    starts, ends = indptr.tolist(), indices.tolist()
    if circulant_order(indptr, indices) is not None:
        return max(distances(starts, ends, 0))
    low = np.zeros(n, dtype=np.int64)
    high = np.full(n, n, dtype=np.int64)
    largest = 0
    for sweep in range(SWEEPS):
        open_nodes = np.flatnonzero(high > largest)
        if open_nodes.size == 0:
            return largest
        # Peripheral nodes raise the largest distance, central ones lower the upper bounds: take turns.
        pick = np.argmax(high[open_nodes]) if sweep % 2 == 0 else np.argmin(low[open_nodes])
        source = int(open_nodes[pick])
        hops = np.array(distances(starts, ends, source))
        eccentricity = int(hops.max())
        largest = max(largest, eccentricity)
        low = np.maximum(low, np.maximum(hops, eccentricity - hops))
        high = np.minimum(high, eccentricity + hops)
        high[source] = eccentricity
    open_nodes = np.flatnonzero(high > largest)
    blocks = [open_nodes[start : start + BLOCK] for start in range(0, open_nodes.size, BLOCK)]
    return max([largest, *(_largest_eccentricity(indptr, indices, block) for block in blocks)])


def _largest_eccentricity(indptr: Ints, indices: Ints, sources: Ints) -> int:
    """The largest eccentricity among `sources`: bit k of row i says whether source k has reached node i."""
    words, bits = np.divmod(np.arange(sources.size), 64)
    reached = np.zeros((len(indptr) - 1, int(words[-1]) + 1), dtype=np.uint64)
    reached[sources, words] = np.uint64(1) << bits.astype(np.uint64)
    everyone = np.bitwise_or.reduce(reached, axis=0)
    steps = 0
    while np.any(reached != everyone):
        reached |= np.bitwise_or.reduceat(reached[indices], indptr[:-1], axis=0)
        steps += 1
    return steps


def frozen(array: npt.NDArray[np.generic]) -> None:
    """Make an array read-only, so that it can be shared."""
    array.setflags(write=False)


def row_pointers(sorted_rows: Ints, n: int) -> Ints:
    """`indptr` of n rows from the ascending row number of every entry."""
    return np.searchsorted(sorted_rows, np.arange(n + 1)).astype(np.int64)


def row_numbers(indptr: Ints) -> Ints:
    """The row number of every entry: the inverse of `row_pointers`."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def circulant_order(indptr: Ints, indices: Ints) -> Ints | None:
    """Positions [n, k] that list each row's entries by column - row mod n, or None if the pattern is not circulant.

    In a circulant pattern every row is the row above it moved one place to the right.
    """
    n = len(indptr) - 1
    lengths = np.diff(indptr)
    if np.any(lengths != lengths[0]):
        return None
    offsets = (indices.reshape(n, -1) - np.arange(n)[:, None]) % n
    order = np.argsort(offsets, axis=1)
    offsets = np.take_along_axis(offsets, order, axis=1)
    if np.any(offsets != offsets[0]):
        return None
    return np.asarray(order + indptr[:-1, None])
