"""Fastest-mixing weights (FDLA; Xiao and Boyd, Fast linear iterations for distributed averaging, 2004).

Over symmetric weights w on the edges, W = I - B diag(w) B^T with B the signed incidence matrix and J = 11^T/N:

    minimise s   subject to   -sI <= W - J <= sI

s is then the second largest |eigenvalue| of W. Solved by following the central path of the logarithmic barrier

    f(w, s) = t s - log det(sI - W + J) - log det(sI + W - J)

with Newton's method. Every edge matrix has rank one, so with P = (sI - W + J)^-1 and Q = (sI + W - J)^-1

    grad_w = -diag(B^T P B) + diag(B^T Q B)     Hess_ww = (B^T P B)^2 + (B^T Q B)^2   (squares entry by entry)
    grad_s = t - tr P - tr Q                    Hess_ss = tr P^2 + tr Q^2
                                                Hess_ws = diag(B^T P^2 B) - diag(B^T Q^2 B)

and at the centre for t the value s exceeds the optimum by at most 2N/t.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from gossamer.topology.graph import Floats, Graph, Ints

if TYPE_CHECKING:
    from torch import Tensor

GAP = 1e-8
GROWTH = 10.0
NEWTON_STEPS = 50
DRAWS = 3  # independent 20-bit fingerprints of a path count; 60 bits make a collision negligible


def fastest_weights(graph: Graph) -> Floats:
    """The FDLA weight of every edge of a connected graph, in the order of `graph.edges`.

    If all edges look alike the answer is known: 2/(l2 + ln) on each, where l2 and ln are the smallest non-zero and
    the largest Laplacian eigenvalue, with second eigenvalue (ln - l2)/(ln + l2).
    """
    if len(graph.edges) == 0:
        return np.empty(0)
    classes = edge_classes(graph)
    with _one_torch_thread():
        constant = best_constant(graph)
        if classes.max() == 0:
            return constant
        solution = central_path(graph, classes, constant)
        return min(solution, constant, key=lambda weights: _second_eigenvalue(graph, weights))


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Faster on small matrices, and the last bits do not depend on the number of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def best_constant(graph: Graph) -> Floats:
    """The best weights that are equal on all edges: 2/(l2 + ln)."""
    import torch

    laplacian = _laplacian(graph, np.ones(len(graph.edges)))
    spectrum = torch.linalg.eigvalsh(laplacian)
    return np.full(len(graph.edges), 2 / float(spectrum[1] + spectrum[-1]))


def central_path(graph: Graph, classes: Ints, start: Floats) -> Floats:
    """FDLA weights by the barrier method, one variable per class of edges, from constant weights `start`.

    The classes must be those of `edge_classes`, or finer: every edge of a class then has the same gradient and the
    same row sums of the Hessian, and one representative per class is enough.
    """
    import torch

    barrier = _Barrier(graph, classes)
    s = _second_eigenvalue(graph, start) + 0.1
    point = torch.from_numpy(np.append(start[barrier.first.numpy()], s))
    t = 2 * graph.n / s
    while True:
        point = barrier.centre(point, t)
        if 2 * graph.n / t <= GAP:
            weights: Floats = point[:-1][barrier.member].numpy()
            return weights
        t *= GROWTH


class _Barrier:
    """f(w, s) at points (w_1, ..., w_m, s): one weight per class of edges."""

    def __init__(self, graph: Graph, classes: Ints) -> None:
        import torch

        self.torch = torch
        self.graph = graph
        self.member = torch.from_numpy(classes)
        self.first = torch.from_numpy(np.unique(classes, return_index=True)[1])
        self.sizes = torch.bincount(self.member).to(torch.float64)
        self.i, self.j = torch.from_numpy(graph.edges.T.copy())
        self.eye = torch.eye(graph.n, dtype=torch.float64)

    def factors(self, point: "Tensor") -> list["Tensor"]:
        """Cholesky factors of sI - W + J and sI + W - J; none outside of the domain."""
        weights, s = point[:-1], point[-1]
        rest = self.eye - _laplacian(self.graph, weights[self.member].numpy()) - 1 / self.graph.n
        pairs = [self.torch.linalg.cholesky_ex(s * self.eye + sign * rest) for sign in (-1, 1)]
        return [] if any(failed for _, failed in pairs) else [factor for factor, _ in pairs]

    def value(self, point: "Tensor", t: float, factors: list["Tensor"]) -> float:
        """f, infinite outside of the domain."""
        logs = sum(float(factor.diagonal().log().sum()) for factor in factors)
        return t * float(point[-1]) - 2 * logs if factors else math.inf

    def newton(self, t: float, factors: list["Tensor"]) -> tuple["Tensor", float]:
        """Newton's step and the decrease of f that it promises, to first order."""
        size = len(self.sizes)
        gradient = self.eye.new_zeros(size + 1)
        hessian = self.eye.new_zeros(size + 1, size + 1)
        gradient[-1] = t
        for factor, sign in zip(factors, (1, -1), strict=True):
            inverse = self.torch.cholesky_inverse(factor)
            columns = inverse[self.i[self.first]] - inverse[self.j[self.first]]
            products = columns[:, self.i] - columns[:, self.j]
            gradient[:-1] -= sign * self.sizes * products[range(size), self.first]
            gradient[-1] -= inverse.trace()
            hessian[:-1, :-1].index_add_(1, self.member, self.sizes[:, None] * products.square())
            hessian[:-1, -1] += sign * self.sizes * columns.square().sum(1)
            hessian[-1, -1] += inverse.square().sum()
        hessian[-1, :-1] = hessian[:-1, -1]
        step = -self.torch.linalg.solve(hessian, gradient)
        return step, -float(gradient @ step)

    def centre(self, point: "Tensor", t: float) -> "Tensor":
        """The minimum of f for this t, by Newton's method with a line search."""
        factors = self.factors(point)
        value = self.value(point, t, factors)
        for _ in range(NEWTON_STEPS):
            step, decrease = self.newton(t, factors)
            length = 1.0
            while decrease > 1e-7 and length > 1e-6:
                trial = point + length * step
                trial_factors = self.factors(trial)
                trial_value = self.value(trial, t, trial_factors)
                if trial_value <= value - 0.1 * length * decrease:
                    break
                length /= 2
            else:  # nothing left to gain, or rounding hides it
                break
            point, factors, value = trial, trial_factors, trial_value
        return point


def _laplacian(graph: Graph, weights: Floats) -> "Tensor":
    """B diag(w) B^T."""
    import torch

    i, j = graph.edges.T
    matrix = np.zeros((graph.n, graph.n))
    matrix[i, j] = matrix[j, i] = -weights
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return torch.from_numpy(matrix)


def _second_eigenvalue(graph: Graph, weights: Floats) -> float:
    """The largest |eigenvalue| of W - J."""
    import torch

    rest = torch.eye(graph.n, dtype=torch.float64) - _laplacian(graph, weights) - 1 / graph.n
    return float(torch.linalg.eigvalsh(rest).abs().max())


def edge_classes(graph: Graph) -> Ints:
    """A class number for every edge such that some fastest-mixing solution is constant on each class.

    The classes come from the coarsest coherent configuration of the graph (two-dimensional colour refinement): start
    with the colours "same node", "edge", "no edge" on ordered pairs and split the colour of (i, j) by the colours
    seen on the two-step paths i-k-j until nothing splits. Averaging a matrix over these colours keeps I, J, the
    support and every bound -sI <= W - J <= sI, so it turns any optimal W into an optimal W that is constant on
    colours. On an edge-transitive graph such as a star or a hypercube one class remains, on an asymmetric one every
    edge is alone.

    >>> edge_classes(Graph(4, [(0, 1), (1, 2), (2, 3)])).tolist()
    [0, 1, 0]
    """
    n = graph.n
    rng = np.random.default_rng(0)
    colours = np.full((n, n), 2, dtype=np.int64)
    i, j = graph.edges.T
    colours[i, j] = colours[j, i] = 1
    np.fill_diagonal(colours, 0)
    count, previous = int(colours.max()) + 1, 0
    while count > previous:
        previous = count
        split = _split(colours, colours.T)
        for _ in range(DRAWS):
            # Integers below 2^20 keep every sum of up to 2^13 products exact in double precision.
            left, right = rng.integers(2**20, size=(2, count)).astype(np.float64)
            split = _split(split, left[colours] @ right[colours])
        colours = split
        count = int(colours.max()) + 1
    classes: Ints = np.unique(np.minimum(colours[i, j], colours[j, i]), return_inverse=True)[1]
    return classes


def _split(colours: Ints, signature: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Ints:
    """Colours refined by a second value per pair, numbered from 0."""
    extra = np.unique(signature.ravel(), return_inverse=True)[1]
    keys = colours.ravel() * (int(extra.max()) + 1) + extra
    return np.asarray(np.unique(keys, return_inverse=True)[1].reshape(colours.shape))
