"""Edges that look alike: which of them may share one weight in a fastest-mixing solution."""

import numpy as np

from gossamer.topology.csr import Ints
from gossamer.topology.graph import Graph

DRAWS = 3  # independent 20-bit fingerprints of a path count; 60 bits make a collision negligible


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
