"""Draws of random graphs, connected or not, and drawing until one is connected."""

from collections.abc import Callable

import numpy as np

from gossamer.errors import InputError
from gossamer.topology.graph import Graph, Ints

ATTEMPTS = 200
MOST_EDGES = 50_000_000


def refuse_too_many_edges(n: int, edges: int) -> None:
    """Refuse a graph before its edges are made, if there are so many that memory would not hold them."""
    if edges > MOST_EDGES:
        raise InputError(
            f"This graph of {n:,} nodes would have {edges:,} edges, more than {MOST_EDGES:,}; give fewer nodes or a "
            f"sparser graph."
        )


def connected_draw(draw: Callable[[np.random.Generator], Graph], rng: np.random.Generator) -> Graph | None:
    """The first connected graph among `ATTEMPTS` draws, or None."""
    for _ in range(ATTEMPTS):
        graph = draw(rng)
        if graph.is_connected:
            return graph
    return None


def random_pairing(n: int, degree: int, rng: np.random.Generator) -> Graph:
    """A random regular graph, by the pairing of Steger and Wormald (1999).

    Every node offers `degree` ends; ends are paired at random, pairs that would make a loop or a double edge are put
    back, and the draw starts over when no end finds a partner any more. Two special cases: a connected graph of
    degree 2 is a ring in random order, and a dense graph is the complement of a sparse one.
    """
    if degree == 2:
        ring = rng.permutation(n)
        return Graph(n, np.stack([ring, np.roll(ring, 1)], axis=1))
    if degree > (n - 1) // 2:
        missing = _pairs(n, n - 1 - degree, rng)
        i, j = np.triu_indices(n, 1)
        kept = ~np.isin(i * n + j, missing)
        return Graph(n, np.stack([i[kept], j[kept]], axis=1))
    keys = _pairs(n, degree, rng)
    return Graph(n, np.stack([keys // n, keys % n], axis=1))


def _pairs(n: int, degree: int, rng: np.random.Generator) -> Ints:
    """The edges i < j of a random regular graph as numbers i * n + j."""
    while True:
        done = np.empty(0, dtype=np.int64)
        ends = np.repeat(np.arange(n), degree)
        failures = 0
        while ends.size and failures < 20:
            i, j = np.sort(rng.permutation(ends).reshape(-1, 2), axis=1).T
            keys = i * n + j
            good = (i != j) & ~np.isin(keys, done)
            repeated = np.ones(keys.size, dtype=bool)
            repeated[np.unique(keys, return_index=True)[1]] = False
            good &= ~repeated
            failures = 0 if good.any() else failures + 1
            done = np.concatenate([done, keys[good]])
            ends = np.concatenate([i[~good], j[~good]])
        if ends.size == 0:
            return done


def rewired_lattice(n: int, degree: int, rewire: float, rng: np.random.Generator) -> Graph:
    """A Watts-Strogatz graph: the edge from i to i + k goes to a random new neighbour with probability `rewire`."""
    nodes = np.arange(n)
    neighbours: list[set[int]] = [set() for _ in range(n)]
    offsets = range(1, degree // 2 + 1)
    for k in offsets:
        for i in range(n):
            neighbours[i].add((i + k) % n)
            neighbours[(i + k) % n].add(i)
    for k in offsets:
        for i in nodes[rng.random(n) < rewire].tolist():
            if len(neighbours[i]) == n - 1:
                continue
            target = int(rng.integers(n))
            while target == i or target in neighbours[i]:
                target = int(rng.integers(n))
            old = (i + k) % n
            neighbours[i].remove(old)
            neighbours[old].remove(i)
            neighbours[i].add(target)
            neighbours[target].add(i)
    return Graph(n, [(i, j) for i in range(n) for j in neighbours[i] if i < j])
