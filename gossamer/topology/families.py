"""Families of graphs, each as a static topology: ring(25), hypercube(8, weights="lazy"), ..."""

import math
from collections.abc import Iterable

import numpy as np

from gossamer._common import checks as arguments
from gossamer._common.checks import node_count, whole_number
from gossamer.errors import InputError
from gossamer.topology.csr import Ints
from gossamer.topology.graph import Graph
from gossamer.topology.random_graphs import connected_draw, random_pairing, rewired_lattice
from gossamer.topology.topology import Topology
from gossamer.topology.weights import weigh


def on_graph(name: str, graph: Graph, weights: str = "metropolis") -> Topology:
    """The static topology of a graph with weights of that name: "metropolis", "uniform", "lazy" or "fastest".

    >>> on_graph("triangle", Graph(3, [(0, 1), (1, 2), (0, 2)]))
    Topology('triangle', n=3, degree=2, period=1)
    """
    prefix = f"{weights} " if weights in ("lazy", "fastest") else ""
    return Topology(prefix + name, [weigh(graph, weights)], graph.labels)


def ring(n: int, weights: str = "metropolis") -> Topology:
    """i is joined to i - 1 and i + 1 mod n; all weights 1/3 from n = 3 on.

    >>> ring(4).graph.edges.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    return on_graph("ring", _circulant(node_count(n), [1]), weights)


def chain(n: int, weights: str = "metropolis") -> Topology:
    """i is joined to i + 1, without wrapping around.

    >>> chain(4).graph.edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    nodes = np.arange(node_count(n))
    return on_graph("chain", Graph(n, np.stack([nodes[:-1], nodes[1:]], axis=1)), weights)


def star(n: int, weights: str = "metropolis") -> Topology:
    """Node 0 is joined to all others.

    >>> star(4).graph.edges.tolist()
    [[0, 1], [0, 2], [0, 3]]
    """
    leaves = np.arange(1, node_count(n))
    return on_graph("star", Graph(n, np.stack([np.zeros_like(leaves), leaves], axis=1)), weights)


def complete(n: int, weights: str = "metropolis") -> Topology:
    """Every node is joined to every other: one round gives the exact average.

    >>> round(complete(4).p, 12)
    1.0
    """
    return on_graph("complete", Graph(node_count(n), np.stack(np.triu_indices(n, 1), axis=1)), weights)


def grid(n: int, rows: int | None = None, weights: str = "metropolis") -> Topology:
    """A rectangle of `rows` rows, as square as n allows unless given; node r * columns + c sits at (r, c).

    >>> grid(6, rows=2).graph.neighbours(1).tolist()
    [0, 2, 4]
    """
    cells = _rectangle("grid", n, rows)
    pairs = [(cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])]
    return on_graph("grid", Graph(n, _edges(pairs)), weights)


def torus(n: int, rows: int | None = None, weights: str = "metropolis") -> Topology:
    """A grid whose rows and columns wrap around.

    >>> torus(9).degree
    4
    """
    cells = _rectangle("torus", n, rows)
    pairs = [(cells, np.roll(cells, -1, axis)) for axis in (0, 1) if cells.shape[axis] > 1]
    return on_graph("torus", Graph(n, _edges(pairs)), weights)


def hypercube(n: int, weights: str = "metropolis") -> Topology:
    """i and j are joined if their binary digits differ in one place; n is a power of two.

    >>> hypercube(8).graph.neighbours(0).tolist()
    [1, 2, 4]
    """
    n = node_count(n)
    nodes = np.arange(n)
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise InputError(f"A hypercube has a power of two of nodes, not {n}; use {below} or {2 * below}.")
    pairs = [(nodes, nodes ^ (1 << k)) for k in range(n.bit_length() - 1)]
    return on_graph("hypercube", Graph(n, _edges(pairs)), weights)


def exponential(n: int, weights: str = "metropolis") -> Topology:
    """i is joined to i + 2^k and i - 2^k mod n for all 2^k < n (the paper's "semantic exponential graph").

    >>> exponential(8).graph.neighbours(0).tolist()
    [1, 2, 4, 6, 7]
    """
    powers = [1 << k for k in range((node_count(n) - 1).bit_length())]
    return on_graph("exponential", _circulant(n, powers), weights)


def balanced_tree(n: int, branching: int = 2, weights: str = "metropolis") -> Topology:
    """The parent of node i > 0 is (i - 1) // branching: every level is full before the next begins.

    >>> balanced_tree(7).graph.neighbours(1).tolist()
    [0, 3, 4]
    """
    children = np.arange(1, node_count(n))
    branching = whole_number(branching, "the branching of a tree", least=1)
    return on_graph("balanced-tree", Graph(n, np.stack([(children - 1) // branching, children], axis=1)), weights)


def random_regular(n: int, degree: int, seed: int = 0, weights: str = "metropolis") -> Topology:
    """A connected graph drawn at random in which every node has `degree` neighbours.

    >>> random_regular(10, degree=3).graph.degrees.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    """
    n = node_count(n)
    degree = whole_number(degree, "the degree of a regular graph", least=0)
    if degree >= n:
        raise InputError(f"A regular graph of {n} nodes has a degree of at most {n - 1}, not {degree}.")
    if n * degree % 2:
        raise InputError(
            f"There is no regular graph of {n} nodes of degree {degree}, because n times degree counts every edge "
            f"twice and must be even; change either by one."
        )
    if degree < min(2, n - 1):
        raise InputError(f"A regular graph of {n} nodes of degree {degree} is not connected; use degree 2 or more.")
    draw = connected_draw(lambda rng: random_pairing(n, degree, rng), _generator(seed))
    if draw is None:
        raise InputError(
            f"No connected regular graph of {n} nodes of degree {degree} was found; try another seed or degree."
        )
    return on_graph("random-regular", draw, weights)


def erdos_renyi(n: int, probability: float, seed: int = 0, weights: str = "metropolis") -> Topology:
    """Every pair of nodes is joined with the same probability, drawn anew until the graph is connected.

    >>> erdos_renyi(10, probability=0.5).graph.is_connected
    True
    """
    n = node_count(n)
    pairs = n * (n - 1) // 2
    probability = arguments.probability(probability, "the edge probability")

    def draw(rng: np.random.Generator) -> Graph:
        chosen = rng.choice(pairs, size=rng.binomial(pairs, probability), replace=False, shuffle=False)
        # Pair number k is (i, j) with j(j-1)/2 <= k: the pairs below node j come first.
        j = np.floor((1 + np.sqrt(1 + 8.0 * chosen)) / 2).astype(np.int64)
        j -= j * (j - 1) // 2 > chosen
        return Graph(n, np.stack([chosen - j * (j - 1) // 2, j], axis=1))

    graph = Graph(n) if pairs == 0 else connected_draw(draw, _generator(seed))
    if graph is None:
        raise InputError(
            f"No connected graph of {n} nodes was found at edge probability {probability:g}; "
            f"use a probability well above log(n)/n = {math.log(n) / n:.3g}."
        )
    return on_graph("erdos-renyi", graph, weights)


def small_world(n: int, degree: int = 4, rewire: float = 0.1, seed: int = 0, weights: str = "metropolis") -> Topology:
    """Watts-Strogatz: some edges of a ring lattice lead to a random node instead.

    Every node is joined to the degree/2 nearest on each side; each edge moves its far end with probability `rewire`;
    the whole is drawn anew until it is connected.

    >>> len(small_world(10, degree=4).graph.edges)
    20
    """
    n = node_count(n)
    degree = whole_number(degree, "the degree of a small world", least=2)
    if degree % 2 or degree >= n:
        raise InputError(
            f"A small world starts from a ring joined to degree/2 nodes on each side, so the degree must be even and "
            f"below the {n} nodes, not {degree}."
        )
    rewire = arguments.probability(rewire, "the rewiring probability")
    graph = connected_draw(lambda rng: rewired_lattice(n, degree, rewire, rng), _generator(seed))
    if graph is None:
        raise InputError(
            f"No connected small world of {n} nodes of degree {degree} was found at rewiring probability {rewire:g}; "
            f"use a larger degree or a smaller probability."
        )
    return on_graph("small-world", graph, weights)


def _circulant(n: int, offsets: Iterable[int]) -> Graph:
    nodes = np.arange(n)
    return Graph(n, _edges([(nodes, (nodes + offset) % n) for offset in offsets if offset % n]))


def _edges(pairs: Iterable[tuple[Ints, Ints]]) -> Ints:
    columns = [np.stack([i.ravel(), j.ravel()], axis=1) for i, j in pairs]
    return np.concatenate([np.empty((0, 2), dtype=np.int64), *columns])


def _rectangle(name: str, n: int, rows: int | None) -> Ints:
    n = node_count(n)
    if rows is None:
        rows = max(divisor for divisor in range(1, math.isqrt(n) + 1) if n % divisor == 0)
    rows = whole_number(rows, f"the number of rows of a {name}", least=1)
    if n % rows:
        raise InputError(f"A {name} of {n} nodes cannot have {rows} rows; the rows must divide the nodes evenly.")
    return np.arange(n).reshape(rows, n // rows)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(whole_number(seed, "the seed"))
