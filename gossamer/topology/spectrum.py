"""Eigenvalues and contraction factors of mixing matrices, by the cheapest exact way.

Circulant matrices (rings, exponential graphs, one-peer schedules) are diagonal in the Fourier basis: no N x N matrix.
Other matrices of up to `DENSE_LIMIT` nodes are decomposed densely. Beyond that Lanczos runs on the sparse matrix.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from gossamer.topology.csr import Floats, circulant_order
from gossamer.topology.mixing import Mixing

DENSE_LIMIT = 1024
DENSE_PRODUCT_LIMIT = 256  # a product over a period costs many dense multiplications


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
