"""The weights of one round, a sparse doubly stochastic matrix, and how they are made from a graph."""

from collections.abc import Callable
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from gossamer._common.checks import node_count, normalized
from gossamer.errors import InputError, unknown
from gossamer.topology.fastest import fastest_weights
from gossamer.topology.graph import Floats, Graph, Ints, frozen, row_numbers, row_pointers

TOLERANCE = 1e-12


class Mixing:
    """One round's mixing matrix W: after the round node i holds sum_j W[i, j] x_j.

    Built from entries W[receivers[k], senders[k]] = values[k] (entries given twice add up) and stored as compressed
    rows: the senders of node i, itself always included, are indices[indptr[i] : indptr[i+1]], ascending, with the
    weights in `values` at the same places. W may be directed (not symmetric). It must be doubly stochastic (rows and
    columns sum to 1, to 1e-12 or what rounding does to very many entries: gossip then keeps the average) and
    non-negative unless `allow_negative`, which only the fastest-mixing weights use.

    >>> pair = Mixing(2, [0, 0, 1, 1], [0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5])
    >>> (pair @ np.array([1.0, 3.0])).tolist()
    [2.0, 2.0]
    """

    n: int
    indptr: Ints
    indices: Ints
    values: Floats
    allow_negative: bool

    def __init__(
        self,
        n: int,
        receivers: npt.ArrayLike,
        senders: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        allow_negative: bool = False,
    ) -> None:
        self.n = n = node_count(n)
        self.allow_negative = allow_negative
        own = np.arange(n)  # a node's own weight is stored even where it is 0
        rows = np.concatenate([np.asarray(receivers, dtype=np.int64), own])
        columns = np.concatenate([np.asarray(senders, dtype=np.int64), own])
        entries = np.concatenate([np.asarray(values, dtype=np.float64), np.zeros(n)])
        if not len(rows) == len(columns) == len(entries):
            raise InputError("A mixing matrix needs one receiver, one sender and one value per entry.")
        if min(rows.min(), columns.min()) < 0 or max(rows.max(), columns.max()) >= n:
            raise InputError(f"An entry of the mixing matrix is outside of its {n} nodes, 0 to {n - 1}.")
        keys = rows * n + columns
        order = np.argsort(keys)
        keys = keys[order]
        distinct = np.flatnonzero(np.diff(keys, prepend=-1))
        weights = np.add.reduceat(entries[order], distinct)
        rows, columns = np.divmod(keys[distinct], n)
        kept = (weights != 0) | (rows == columns)
        self.indptr, self.indices, self.values = row_pointers(rows[kept], n), columns[kept], weights[kept]
        for array in (self.indptr, self.indices, self.values):
            frozen(array)
        self._validate()

    def _validate(self) -> None:
        if not np.all(np.isfinite(self.values)):
            raise InputError("The mixing matrix holds a value that is not a finite number.")
        rows = row_numbers(self.indptr)
        if not self.allow_negative and self.values.min() < 0:
            worst = int(self.values.argmin())
            raise InputError(
                f"The mixing matrix has the negative weight {self.values[worst]:.6g} in row {rows[worst]}, column "
                f"{self.indices[worst]}; weights must not be negative (only weights='fastest' may use such weights)."
            )
        for kind, places in (("Row", rows), ("Column", self.indices)):
            sums = np.bincount(places, weights=self.values, minlength=self.n)
            allowed = np.maximum(TOLERANCE, np.finfo(np.float64).eps * np.bincount(places, minlength=self.n))
            worst = int((np.abs(sums - 1) / allowed).argmax())
            if abs(sums[worst] - 1) > allowed[worst]:
                raise InputError(
                    f"{kind} {worst} of the mixing matrix sums to {sums[worst]:.15g}, not to 1; gossip keeps the "
                    f"average only if every row and every column sums to 1 (to {allowed[worst]:.2g}, in double "
                    f"precision)."
                )

    @classmethod
    def from_dense(cls, matrix: npt.ArrayLike) -> Self:
        """The same from a square array W[receiver, sender]."""
        try:
            dense = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError("A mixing matrix must be a square array of numbers.") from error
        if dense.ndim != 2 or dense.shape[0] != dense.shape[1] or dense.size == 0:
            raise InputError(f"A mixing matrix must be a square array of numbers, not one of shape {dense.shape}.")
        rows, columns = np.nonzero(dense)
        return cls(len(dense), rows, columns, dense[rows, columns])

    def senders(self, i: int) -> Ints:
        """The other nodes whose vectors node i receives, ascending."""
        row = self.indices[self.indptr[i] : self.indptr[i + 1]]
        return np.asarray(row[row != i])

    def receivers(self, i: int) -> Ints:
        """The other nodes to which node i sends its vector, ascending."""
        return self.T.senders(i)

    @cached_property
    def T(self) -> "Mixing":
        """The transpose: every message travels the other way."""
        return Mixing(self.n, self.indices, row_numbers(self.indptr), self.values, allow_negative=self.allow_negative)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether W equals its transpose (to 1e-12)."""
        rows = row_numbers(self.indptr)
        keys = np.concatenate([rows * self.n + self.indices, self.indices * self.n + rows])
        _, place = np.unique(keys, return_inverse=True)
        difference = np.bincount(place, weights=np.concatenate([self.values, -self.values]))
        return bool(np.abs(difference).max() <= TOLERANCE)

    @property
    def degree(self) -> int:
        """The largest number of messages that a node sends."""
        return int(np.bincount(self.indices).max()) - 1

    def dense(self) -> Floats:
        """W as an [n, n] array."""
        matrix = np.zeros((self.n, self.n))
        matrix[row_numbers(self.indptr), self.indices] = self.values
        return matrix

    def lazy(self) -> "Mixing":
        """(I + W)/2: every node moves half way. No eigenvalue of a non-negative W is then negative."""
        own = np.arange(self.n)
        return Mixing(
            self.n,
            np.concatenate([row_numbers(self.indptr), own]),
            np.concatenate([self.indices, own]),
            np.concatenate([self.values / 2, np.full(self.n, 0.5)]),
            allow_negative=self.allow_negative,
        )

    def __matmul__(self, x: Floats) -> Floats:
        """W x for x of shape [n] or [n, d]."""
        weights = self.values.reshape(-1, *(1,) * (x.ndim - 1))
        return np.asarray(np.add.reduceat(weights * x[self.indices], self.indptr[:-1], axis=0))

    def __repr__(self) -> str:
        return f"Mixing(n={self.n}, degree={self.degree})"


def metropolis(graph: Graph) -> Mixing:
    """Metropolis-Hastings: W_ij = 1/(1 + max(deg_i, deg_j)) on edges, the rest stays with the node.

    The node's own weight is summed as 1/(1 + deg_i) + sum_j (1/(1 + deg_i) - W_ij), whose terms are never negative,
    so that on a regular graph every weight is exactly 1/(deg + 1).
    """
    i, j = graph.edges.T
    share = 1 / (1 + graph.degrees)
    edge = np.minimum(share[i], share[j])
    own = share + np.bincount(i, share[i] - edge, graph.n) + np.bincount(j, share[j] - edge, graph.n)
    return _symmetric(graph, edge, own)


def uniform(graph: Graph) -> Mixing:
    """W_ij = 1/(deg + 1) for the neighbours and the node itself: regular graphs only."""
    if not graph.is_regular:
        raise InputError(
            f"Uniform weights need a regular graph, but the degrees here run from {graph.degrees.min()} to "
            f"{graph.degrees.max()}; use weights='metropolis', which equals uniform weights on regular graphs."
        )
    return metropolis(graph)


def lazy(graph: Graph) -> Mixing:
    """(I + W)/2 of the Metropolis-Hastings weights W: no negative eigenvalue."""
    return metropolis(graph).lazy()


def fastest(graph: Graph) -> Mixing:
    """FDLA: the symmetric weights, negative ones allowed, whose second largest |eigenvalue| is smallest."""
    if not graph.is_connected:
        raise InputError(
            f"Fastest weights need a connected graph, but no path joins node 0 and node {graph.unreachable}."
        )
    i, j = graph.edges.T
    edge = fastest_weights(graph)
    own = np.ones(graph.n) - np.bincount(i, edge, graph.n) - np.bincount(j, edge, graph.n)
    return _symmetric(graph, edge, own, allow_negative=True)


WEIGHTS: dict[str, Callable[[Graph], Mixing]] = {
    "metropolis": metropolis,
    "uniform": uniform,
    "lazy": lazy,
    "fastest": fastest,
}


def weigh(graph: Graph, weights: str = "metropolis") -> Mixing:
    """The mixing weights of that name on a graph.

    >>> weigh(Graph(3, [(0, 1), (1, 2)])).values.round(2).tolist()
    [0.67, 0.33, 0.33, 0.33, 0.33, 0.33, 0.67]
    """
    return WEIGHTS[known_weights(weights)](graph)


def known_weights(name: str) -> str:
    """The name of weights as `WEIGHTS` has it."""
    if normalized(name) not in WEIGHTS:
        raise unknown("kind of weights", str(name), WEIGHTS)
    return normalized(name)


def _symmetric(graph: Graph, edge: Floats, own: Floats, allow_negative: bool = False) -> Mixing:
    """W with W_ij = W_ji = edge weight and W_ii = own."""
    i, j = graph.edges.T
    nodes = np.arange(graph.n)
    return Mixing(
        graph.n,
        np.concatenate([i, j, nodes]),
        np.concatenate([j, i, nodes]),
        np.concatenate([edge, edge, own]),
        allow_negative=allow_negative,
    )
