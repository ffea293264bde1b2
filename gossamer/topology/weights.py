"""From a graph to mixing weights, by name."""

from collections.abc import Callable

import numpy as np

from gossamer.errors import InputError, unknown
from gossamer.topology.csr import Floats
from gossamer.topology.fastest import fastest_weights
from gossamer.topology.graph import Graph
from gossamer.topology.mixing import Mixing


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
    if weights not in WEIGHTS:
        raise unknown("kind of weights", str(weights), WEIGHTS)
    return WEIGHTS[weights](graph)


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
