"""Topologies by name: the families of graphs, and `get`, which makes any topology from a description in a string."""

import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from gossamer._common import checks
from gossamer._common.checks import node_count, whole_number
from gossamer.errors import InputError, unknown
from gossamer.topology.finite_time import base, simple_base
from gossamer.topology.graph import Graph, Ints
from gossamer.topology.mixing import known_weights
from gossamer.topology.random_graphs import connected_draw, random_pairing, refuse_too_many_edges, rewired_lattice
from gossamer.topology.schedules import epidemic, lossy, one_peer_exponential, random_matchings
from gossamer.topology.sources import from_file, from_matrix_file
from gossamer.topology.topology import Topology, on_graph


def ring(n: int, weights: str = "metropolis") -> Topology:
    """i is joined to i - 1 and i + 1 mod n; all weights 1/3 from n = 3 on.

    >>> ring(4).graph.edges.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    return on_graph("ring", _circulant(node_count(n), [1]), weights, of_size=partial(ring, weights=weights))


def chain(n: int, weights: str = "metropolis") -> Topology:
    """i is joined to i + 1, without wrapping around.

    >>> chain(4).graph.edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    nodes = np.arange(node_count(n))
    return on_graph(
        "chain", Graph(n, np.stack([nodes[:-1], nodes[1:]], axis=1)), weights, of_size=partial(chain, weights=weights)
    )


def star(n: int, weights: str = "metropolis") -> Topology:
    """Node 0 is joined to all others.

    >>> star(4).graph.edges.tolist()
    [[0, 1], [0, 2], [0, 3]]
    """
    leaves = np.arange(1, node_count(n))
    return on_graph(
        "star",
        Graph(n, np.stack([np.zeros_like(leaves), leaves], axis=1)),
        weights,
        of_size=partial(star, weights=weights),
    )


def complete(n: int, weights: str = "metropolis") -> Topology:
    """Every node is joined to every other: one round gives the exact average.

    >>> round(complete(4).p, 12)
    1.0
    """
    refuse_too_many_edges(n, node_count(n) * (n - 1) // 2)
    return on_graph(
        "complete",
        Graph(n, np.stack(np.triu_indices(n, 1), axis=1)),
        weights,
        of_size=partial(complete, weights=weights),
    )


def grid(n: int, rows: int | None = None, weights: str = "metropolis") -> Topology:
    """A rectangle of `rows` rows, as square as n allows unless given; node r * columns + c sits at (r, c).

    >>> grid(6, rows=2).graph.neighbours(1).tolist()
    [0, 2, 4]
    """
    cells = _rectangle("grid", n, rows)
    pairs = [(cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])]
    return on_graph("grid", Graph(n, _edges(pairs)), weights, of_size=partial(grid, rows=rows, weights=weights))


def torus(n: int, rows: int | None = None, weights: str = "metropolis") -> Topology:
    """A grid whose rows and columns wrap around.

    >>> torus(9).degree
    4
    """
    cells = _rectangle("torus", n, rows)
    pairs = [(cells, np.roll(cells, -1, axis)) for axis in (0, 1) if cells.shape[axis] > 1]
    return on_graph("torus", Graph(n, _edges(pairs)), weights, of_size=partial(torus, rows=rows, weights=weights))


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
    return on_graph("hypercube", Graph(n, _edges(pairs)), weights, of_size=partial(hypercube, weights=weights))


def exponential(n: int, weights: str = "metropolis") -> Topology:
    """i is joined to i + 2^k and i - 2^k mod n for all 2^k < n (the paper's "semantic exponential graph").

    >>> exponential(8).graph.neighbours(0).tolist()
    [1, 2, 4, 6, 7]
    """
    powers = [1 << k for k in range((node_count(n) - 1).bit_length())]
    return on_graph("exponential", _circulant(n, powers), weights, of_size=partial(exponential, weights=weights))


def balanced_tree(n: int, branching: int = 2, weights: str = "metropolis") -> Topology:
    """The parent of node i > 0 is (i - 1) // branching: every level is full before the next begins.

    >>> balanced_tree(7).graph.neighbours(1).tolist()
    [0, 3, 4]
    """
    children = np.arange(1, node_count(n))
    branching = whole_number(branching, "the branching of a tree", least=1)
    return on_graph(
        "balanced-tree",
        Graph(n, np.stack([(children - 1) // branching, children], axis=1)),
        weights,
        of_size=partial(balanced_tree, branching=branching, weights=weights),
    )


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
    refuse_too_many_edges(n, n * degree // 2)
    draw = connected_draw(lambda rng: random_pairing(n, degree, rng), _generator(seed))
    if draw is None:
        raise InputError(
            f"No connected regular graph of {n} nodes of degree {degree} was found; try another seed or degree."
        )
    return on_graph(
        "random-regular", draw, weights, of_size=partial(random_regular, degree=degree, seed=seed, weights=weights)
    )


def erdos_renyi(n: int, probability: float, seed: int = 0, weights: str = "metropolis") -> Topology:
    """Every pair of nodes is joined with the same probability, drawn again until the graph is connected.

    >>> erdos_renyi(10, probability=0.5).graph.is_connected
    True
    """
    n = node_count(n)
    pairs = n * (n - 1) // 2
    probability = checks.probability(probability, "the edge probability")
    refuse_too_many_edges(n, int(pairs * probability))

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
    return on_graph(
        "erdos-renyi", graph, weights, of_size=partial(erdos_renyi, probability=probability, seed=seed, weights=weights)
    )


def small_world(n: int, degree: int = 4, rewire: float = 0.1, seed: int = 0, weights: str = "metropolis") -> Topology:
    """Watts-Strogatz: some edges of a ring lattice lead to a random node instead.

    Every node is joined to the degree/2 nearest on each side; each edge moves its far end with probability `rewire`;
    the graph is drawn again until it is connected.

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
    refuse_too_many_edges(n, n * degree // 2)
    rewire = checks.probability(rewire, "the rewiring probability")
    graph = connected_draw(lambda rng: rewired_lattice(n, degree, rewire, rng), _generator(seed))
    if graph is None:
        raise InputError(
            f"No connected small world of {n} nodes of degree {degree} was found at rewiring probability {rewire:g}; "
            f"use a larger degree or a smaller probability."
        )
    return on_graph(
        "small-world",
        graph,
        weights,
        of_size=partial(small_world, degree=degree, rewire=rewire, seed=seed, weights=weights),
    )


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


def _lossy(n: int, graph: str = "ring", drop: float = 0.1, period: int = 100, seed: int = 0) -> Topology:
    """`lossy` by name: the parameters of its graph are joined by a plus sign, because a comma ends them."""
    return lossy(get(graph.replace("+", ","), n, seed=seed), drop, period, seed)


FAMILIES: dict[str, Callable[..., Topology]] = {
    "ring": ring,
    "chain": chain,
    "star": star,
    "complete": complete,
    "grid": grid,
    "torus": torus,
    "hypercube": hypercube,
    "exponential": exponential,
    "balanced-tree": balanced_tree,
    "random-regular": random_regular,
    "erdos-renyi": erdos_renyi,
    "small-world": small_world,
}
SCHEDULES: dict[str, Callable[..., Topology]] = {
    "one-peer-exponential": one_peer_exponential,
    "random-matchings": random_matchings,
    "base": base,
    "simple-base": simple_base,
    "epidemic": epidemic,
    "lossy": _lossy,
}


def names() -> tuple[str, ...]:
    """The names that `get` knows, besides file:PATH and matrix:PATH.

    >>> "ring" in names(), "one-peer-exponential" in names()
    (True, True)
    """
    return (*FAMILIES, *SCHEDULES)


def is_file(spec: str) -> bool:
    """Whether a description names a file, which brings its own number of nodes.

    >>> is_file("file:graph.txt"), is_file("Matrix:weights.csv"), is_file("ring")
    (True, True, False)
    """
    return checks.normalized(checks.split(spec)[0]) in ("file", "matrix")


def get(spec: str | Topology, n: int | None = None, weights: str = "metropolis", seed: int = 0) -> Topology:
    """The topology that `spec` describes, on n nodes.

    `spec` is a name, with parameters after a colon: "ring", "random-regular:degree=4", "grid:rows=2",
    "erdos-renyi:probability=0.3", "random-matchings:period=50,seed=3", "one-peer-exponential", "base:degree=2",
    "lossy:graph=ring,drop=0.01" (a plus sign joins parameters of its graph); or a file:
    "file:graph.txt" (edge list), "matrix:weights.csv" (your own W). `seed` serves the random ones unless the
    parameters name another. A Topology is returned as it is. Files and topologies bring their own number of nodes:
    n may be left out, and is checked otherwise.

    >>> get("random-regular:degree=4", 16)
    Topology('random-regular', n=16, degree=4, period=1)
    """
    weights = known_weights(weights)
    if isinstance(spec, Topology):
        return _of_size(spec, spec.name, n)
    if not isinstance(spec, str):
        raise InputError(f"A topology is given by its name or as a Topology, not as {type(spec).__name__}.")
    given_name, rest = checks.split(spec)
    name = checks.normalized(given_name)
    if name == "file":
        return _of_size(from_file(_path(name, rest), weights), spec, n)
    if name == "matrix":
        return _reweighted(_of_size(from_matrix_file(_path(name, rest)), spec, n), weights)
    build, parameters = _described(given_name, rest)
    if n is None:
        raise InputError(f"Say how many nodes the topology '{name}' should have.")
    if "seed" in inspect.signature(build).parameters:
        parameters.setdefault("seed", seed)
    if name in FAMILIES:
        return build(n, weights=weights, **parameters)
    return _reweighted(build(n, **parameters), weights)


def resolve(given: str | Topology, nodes: int, *, one_node_needs_none: bool = False) -> Topology:
    """The topology meant by an object or, for so many nodes, by a name.

    With `one_node_needs_none`, one node gets a graph without edges whatever name is given, so that a script for many
    nodes runs in one process too; a name that does not exist is refused all the same.

    >>> resolve("ring", 8), resolve("random-regular:degree=4", 1, one_node_needs_none=True)
    (Topology('ring', n=8, degree=2, period=1), Topology('complete', n=1, degree=0, period=1))
    """
    if isinstance(given, Topology):
        return given
    if isinstance(given, Graph):
        raise InputError(
            "A Graph says who talks to whom but not with which weights; give gossamer.topology.on_graph('mine', graph)."
        )
    if not isinstance(given, str):
        raise InputError(
            f"The graph of a run is a gossamer.topology.Topology or a name such as 'ring', not {given!r}; "
            f"gossamer.topology.from_networkx, from_edges and from_matrix make one of your own."
        )
    if nodes == 1 and one_node_needs_none:
        if is_file(given):
            get(given)
        else:
            _described(*checks.split(given))
        return complete(1)
    return get(given, nodes)


def _described(given_name: str, rest: str) -> tuple[Callable[..., Topology], dict[str, Any]]:
    """The function that makes the topology of this name, and its parameters."""
    name = checks.normalized(given_name)
    if name not in names():
        raise unknown("topology", given_name, [*names(), "file:PATH", "matrix:PATH"])
    build = FAMILIES.get(name) or SCHEDULES[name]
    return build, dict(checks.parameters("topology", name, build, rest, given=("n", "weights")))


def _path(name: str, path: str) -> str:
    if not path:
        raise InputError(f"Give the file after the colon, as in '{name}:PATH'.")
    return path


def _of_size(topology: Topology, name: str, n: int | None) -> Topology:
    if n is not None and n != topology.n:
        raise InputError(f"The topology '{name}' has {topology.n} nodes, but {n} were asked for; make them agree.")
    return topology


def _reweighted(topology: Topology, weights: str) -> Topology:
    """A topology that brings its own weights takes no others, but can be made lazy."""
    if weights == "lazy":
        return topology.lazy()
    if weights != "metropolis":
        raise InputError(
            f"The topology '{topology.name}' brings its own weights, so {weights} weights do not apply; "
            f"leave the default, or use lazy."
        )
    return topology
