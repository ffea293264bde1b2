"""A topology: mixing weights over time, validated, and how fast they make the nodes agree.

The spectrum is computed in the cheapest exact way. Circulant matrices (rings, exponential graphs, one-peer schedules)
are diagonal in the Fourier basis: no N x N matrix. Other matrices of up to `DENSE_LIMIT` nodes are decomposed densely.
Beyond that Lanczos runs on the sparse matrix.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer._common import plotting
from gossamer.errors import InputError
from gossamer.topology.graph import Floats, Graph, checked_labels, circulant_order, row_numbers
from gossamer.topology.mixing import Mixing, known_weights, weigh

DENSE_LIMIT = 1024
DENSE_PRODUCT_LIMIT = 256  # a product over a period costs many dense multiplications


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
    of_size: "Callable[[int], Topology] | None"
    """Makes the graph of the same family for another number of nodes; None for a graph of your own."""

    def __init__(
        self,
        name: str,
        mixings: Sequence[Mixing],
        labels: Sequence[str] | None = None,
        *,
        of_size: "Callable[[int], Topology] | None" = None,
    ) -> None:
        self.name = name
        self.of_size = of_size
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
        largest singular value of (product of W over the period) - J, and p then refers to a whole period.
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

    @cached_property
    def smallest_own_weight(self) -> float:
        """The smallest weight that a node gives its own vector in any round.

        >>> from gossamer import topology
        >>> round(topology.star(5).smallest_own_weight, 2)  # the hub's
        0.2
        """
        return float(min(m.values[m.indices == row_numbers(m.indptr)].min() for m in self.mixings))

    def lazy(self) -> "Topology":
        """The same with the weights (I + W)/2 in every round."""
        of_size = self.of_size and partial(_lazy_of_size, self.of_size)
        return Topology(f"lazy {self.name}", [mixing.lazy() for mixing in self.mixings], self.labels, of_size=of_size)

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

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the nodes and every edge that is ever used, and return the matplotlib figure.

        With a path it goes into that .png, .svg or .pdf file, and the path is returned.
        """
        return plotting.plot("topology", self, path)

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, n={self.n}, degree={self.degree}, period={self.period})"


def on_graph(
    name: str, graph: Graph, weights: str = "metropolis", *, of_size: Callable[[int], Topology] | None = None
) -> Topology:
    """The static topology of a graph with weights of that name: "metropolis", "uniform", "lazy" or "fastest".

    `of_size` makes the graph of the same family for another number of nodes, if there is such a family.

    >>> on_graph("triangle", Graph(3, [(0, 1), (1, 2), (0, 2)]))
    Topology('triangle', n=3, degree=2, period=1)
    """
    weights = known_weights(weights)
    prefix = f"{weights} " if weights in ("lazy", "fastest") else ""
    return Topology(prefix + name, [weigh(graph, weights)], graph.labels, of_size=of_size)


def _lazy_of_size(of_size: Callable[[int], Topology], n: int) -> Topology:
    return of_size(n).lazy()


def extreme_eigenvalues(mixing: Mixing) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric W besides the eigenvalue 1 of the average; n >= 2."""
    fourier = _fourier(mixing)
    if fourier is not None:
        others = fourier.real[1:]
        return float(others.min()), float(others.max())
    if mixing.n <= DENSE_LIMIT:
        eigenvalues = np.linalg.eigvalsh(mixing.dense())
        return float(eigenvalues[0]), float(eigenvalues[-2])
    return lanczos(lambda x: mixing @ x, mixing.n)


def contraction(mixings: Sequence[Mixing]) -> float:
    """The largest singular value of (W_{T-1} ... W_0) - J: the factor by which a period shrinks disagreement."""
    n = mixings[0].n
    if n == 1:
        return 0.0
    if len(mixings) == 1 and mixings[0].is_symmetric:
        size = max(map(abs, extreme_eigenvalues(mixings[0])))
    else:
        size = _product_norm(mixings)
    return 0.0 if size < 1e-15 * n else size


def _product_norm(mixings: Sequence[Mixing]) -> float:
    n = mixings[0].n
    transforms = [_fourier(mixing) for mixing in mixings]
    circulant = [transform for transform in transforms if transform is not None]
    if len(circulant) == len(mixings):
        product = np.prod(np.abs(circulant), axis=0)
        return float(product[1:].max())
    if n <= DENSE_PRODUCT_LIMIT:
        matrix = np.eye(n) - 1 / n
        for mixing in mixings:
            matrix = mixing @ matrix
        return float(np.linalg.norm(matrix, 2))

    def forth_and_back(x: Floats) -> Floats:
        for mixing in mixings:
            x = mixing @ x
        for mixing in reversed(mixings):
            x = mixing.T @ x
        return x

    return math.sqrt(max(0.0, lanczos(forth_and_back, n)[1]))


def _fourier(mixing: Mixing) -> npt.NDArray[np.complex128] | None:
    """The eigenvalues of a circulant W, that of the average first, or None if W is not circulant."""
    order = circulant_order(mixing.indptr, mixing.indices)
    if order is None:
        return None
    values = mixing.values[order]
    if np.any(values != values[0]):
        return None
    row = np.zeros(mixing.n)
    row[mixing.indices[order[0]]] = values[0]
    return np.fft.fft(row)


def lanczos(apply: Callable[[Floats], Floats], n: int) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric operator, of norm at most 1, on vectors of mean zero.

    The three-term recurrence without full re-orthogonalisation: rounding adds copies of eigenvalues that have been
    found, which does not move the two ends, and memory stays at three vectors however small the gap is. Stops when
    growing the tridiagonal matrix by a quarter moves each end by at most 1e-8 of its distance from size 1 and of the
    size of the larger end.
    """
    before = np.zeros(n)
    vector = np.random.default_rng(0).standard_normal(n)
    vector -= vector.mean()
    vector /= np.linalg.norm(vector)
    diagonal: list[float] = []
    beside: list[float] = []
    coupling, scale, check, ends = 0.0, 0.0, 32, (math.inf, -math.inf)
    while True:
        fresh = apply(vector) - coupling * before
        diagonal.append(float(fresh @ vector))
        fresh -= diagonal[-1] * vector
        fresh -= (fresh @ before) * before  # rounding: keep neighbours in the sequence orthogonal
        fresh -= (fresh @ vector) * vector
        fresh -= fresh.mean()
        coupling = float(np.linalg.norm(fresh))
        scale = max(scale, abs(diagonal[-1]), coupling)
        exhausted = coupling < 1e-10 * scale or scale < 1e-28
        if exhausted or len(diagonal) == check:
            old, ends = ends, (-_top([-a for a in diagonal], beside), _top(diagonal, beside))
            size = max(map(abs, ends))
            allowed = [1e-8 * min(1 - abs(end), size) + 4e-15 * size for end in ends]
            if exhausted or all(abs(ends[k] - old[k]) <= allowed[k] for k in (0, 1)):
                return ends
            check += max(16, check // 4)
        beside.append(coupling)
        before, vector = vector, fresh / coupling
        vector -= vector.mean()  # again: next to a small operator the eigenvalue 1 of the average would blow up


def _top(diagonal: list[float], beside: list[float]) -> float:
    """The largest eigenvalue of a symmetric tridiagonal matrix, by bisection on the sign of its pivots."""
    reach = 2 * max([*beside, 0.0])
    low, high = max(diagonal), max(diagonal) + reach
    squares = [0.0, *(b * b for b in beside)]
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return high
        pivot = -1.0
        for a, square in zip(diagonal, squares, strict=False):
            pivot = a - middle - square / pivot
            if pivot >= 0:
                break
        if pivot >= 0:
            low = middle
        else:
            high = middle


# D^2 is stable only above -1/3; the margin keeps rounding from deciding.
EIGENVALUE_MARGIN = 1e-6


def _need(default: bool | str | None, label: str, explanation: str, otherwise: str, remedy: str) -> Any:
    """A field of `Needs`: what it asks for, briefly and in full; what a graph does without it; what to do then."""
    metadata = {"label": label, "explanation": explanation, "otherwise": otherwise, "remedy": remedy}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """What a method needs of the graph.

    >>> str(Needs(static=True))
    'static graph'
    """

    static: bool = _need(
        False,
        "static graph",
        "a graph that stays the same, because it {trouble} on one that changes",
        "'{name}' changes from round to round",
        "use a static graph such as ring, or a method that accepts schedules such as momentum-tracking",
    )
    tree: bool = _need(
        False,
        "static tree",
        "a tree, because it relays sums along edges and a cycle would count nodes twice",
        "'{name}' has a cycle",
        "use chain, star or balanced-tree",
    )
    symmetric: bool = _need(
        False,
        "symmetric weights",
        "symmetric weights",
        "in those of '{name}' some W_ij differs from W_ji",
        "use an undirected graph such as ring",
    )
    smallest_eigenvalue: float | None = _need(
        None,
        "smallest eigenvalue above {bound}",
        "every eigenvalue of the mixing matrix above {bound}, or it diverges",
        "the smallest of '{name}' is {smallest:.4f}",
        "use lazy weights (I + W)/2: weights='lazy', or topology.lazy()",
    )
    trouble: str = _need("diverges", "", "", "", "")
    """What the method does on a graph that changes, if it needs a static one."""

    def check(self, title: str, topology: Topology) -> None:
        """Raise an `InputError` that says why the method `title` cannot run on `topology`, and what can be done."""
        if self.static and not topology.is_static:
            raise self._lacking("static", title, topology)
        if self.tree and not topology.is_tree:
            raise self._lacking("tree", title, topology)
        if self.symmetric and not topology.is_symmetric:
            raise self._lacking("symmetric", title, topology)
        bound = self.smallest_eigenvalue
        if bound is not None and (smallest := topology.smallest_eigenvalue) <= bound + EIGENVALUE_MARGIN:
            raise self._lacking("smallest_eigenvalue", title, topology, smallest)

    def _lacking(self, need: str, title: str, topology: Topology, smallest: float = 0.0) -> InputError:
        text = dict(self.__dataclass_fields__[need].metadata)
        sentence = f"{{title}} needs {text['explanation']}, but {text['otherwise']}; {text['remedy']}."
        values = {"name": topology.name, "bound": self._bound, "smallest": smallest, "trouble": self.trouble}
        return InputError(sentence.format(title=title, **values))

    @property
    def _bound(self) -> str:
        """-1/3 rather than -0.3333, which a reader cannot tell from an eigenvalue next to it."""
        return str(Fraction(self.smallest_eigenvalue or 0.0).limit_denominator(1000))

    def __str__(self) -> str:
        asked = [f for f in dataclasses.fields(self) if getattr(self, f.name) not in (False, None)]
        labels = [f.metadata["label"] for f in asked if not (f.name == "static" and self.tree)]
        return ", ".join(filter(None, labels)).format(bound=self._bound) or "any doubly stochastic schedule"
