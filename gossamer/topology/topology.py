"""A topology: mixing weights over time, validated, with what theory wants to know about them."""

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gossamer.errors import InputError
from gossamer.topology.csr import row_numbers
from gossamer.topology.graph import Graph, checked_labels
from gossamer.topology.mixing import Mixing
from gossamer.topology.spectrum import contraction, extreme_eigenvalues


class Topology:
    """Who talks to whom, with which weights, in every round: a period of mixing matrices that repeats.

    The graph of all messages of a period must be connected, else the nodes could never agree. Properties are computed
    when first asked for.

    >>> from gossamer.topology import ring
    >>> ring(25)
    Topology('ring', n=25, degree=2, period=1)
    >>> round(ring(25).p, 5)
    0.04145
    """

    name: str
    mixings: tuple[Mixing, ...]
    """The weights of the rounds of one period."""
    labels: tuple[str, ...] | None
    """The users' names of the nodes 0 to n-1, if they have any."""

    def __init__(self, name: str, mixings: Sequence[Mixing], labels: Sequence[str] | None = None) -> None:
        self.name = name
        self.mixings = tuple(mixings)
        if not self.mixings:
            raise InputError(f"The topology '{name}' needs the weights of at least one round.")
        sizes = sorted({mixing.n for mixing in self.mixings})
        if len(sizes) > 1:
            raise InputError(
                f"All rounds of a topology must have the same nodes, but '{name}' mixes rounds of "
                f"{' and '.join(map(str, sizes))} nodes."
            )
        self.labels = checked_labels(self.n, labels)
        apart = self.graph.unreachable
        if apart is not None:
            over_time = "" if self.is_static else f" in the {self.period} rounds of its period"
            names = self.labels or range(self.n)
            raise InputError(
                f"The graph '{name}' is not connected: no path joins node {names[0]} and node {names[apart]}{over_time}"
                f", so the nodes could never agree; add edges between its parts."
            )

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.mixings[0].n

    @property
    def period(self) -> int:
        """The number of rounds after which the weights repeat."""
        return len(self.mixings)

    def at(self, round: int) -> Mixing:
        """The weights of a round, counted from 0."""
        return self.mixings[round % len(self.mixings)]

    @property
    def is_static(self) -> bool:
        """Whether every round uses the same weights."""
        return self.period == 1

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether W equals its transpose in every round."""
        return all(mixing.is_symmetric for mixing in self.mixings)

    @property
    def is_tree(self) -> bool:
        """Whether this is a static tree."""
        return self.is_static and self.graph.is_tree

    @cached_property
    def graph(self) -> Graph:
        """All pairs of nodes that exchange a message, in either direction, in some round."""
        rows = np.concatenate([row_numbers(mixing.indptr) for mixing in self.mixings])
        columns = np.concatenate([mixing.indices for mixing in self.mixings])
        others = rows != columns
        return Graph(self.n, np.stack([rows[others], columns[others]], axis=1), self.labels)

    @cached_property
    def degree(self) -> int:
        """The largest number of messages that a node sends in a round."""
        return max(mixing.degree for mixing in self.mixings)

    @property
    def diameter(self) -> int:
        """The diameter of `graph`."""
        return self.graph.diameter

    @cached_property
    def _contraction(self) -> float:
        """lambda: the factor by which a period shrinks the distance from the average."""
        return min(1.0, contraction(self.mixings))

    @property
    def mixing_constant(self) -> float:
        """p = 1 - lambda^2, so that |W X - Xbar|^2 <= (1 - p) |X - Xbar|^2 (the paper's Assumption 2).

        lambda is the second largest |eigenvalue| of a static symmetric W. For a schedule or a directed W it is the
        largest singular value of (product of W over the period) - J, and p then speaks of a whole period.
        """
        return 1 - self._contraction**2

    @property
    def p(self) -> float:
        """Short for `mixing_constant`."""
        return self.mixing_constant

    @property
    def spectral_gap(self) -> float:
        """1 - lambda, with the lambda of `mixing_constant`."""
        return 1 - self._contraction

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of a static symmetric W."""
        if not self.is_static or not self.is_symmetric:
            kind = "directed" if self.is_static else "a schedule over time"
            raise InputError(
                f"The smallest eigenvalue is defined for one symmetric mixing matrix, but '{self.name}' is {kind}; "
                f"use a static undirected graph."
            )
        return 1.0 if self.n == 1 else extreme_eigenvalues(self.mixings[0])[0]

    def lazy(self) -> "Topology":
        """The same with the weights (I + W)/2 in every round."""
        return Topology(f"lazy {self.name}", [mixing.lazy() for mixing in self.mixings], self.labels)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the number of nodes and all weights of a period: equal topologies have equal fingerprints.

        Fastest weights come from an iterative solver whose last bits may differ between kinds of processors; to use
        them on such a mixture, compute them once and share the matrix.
        """
        digest = hashlib.sha256(f"{self.n} nodes, {self.period} rounds".encode())
        for mixing in self.mixings:
            for array, kind in ((mixing.indptr, "<i8"), (mixing.indices, "<i8"), (mixing.values, "<f8")):
                digest.update(array.astype(kind).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, n={self.n}, degree={self.degree}, period={self.period})"
