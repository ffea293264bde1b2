"""The graph of the nodes that are there, after some have left or joined."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gossamer.errors import InputError
from gossamer.topology.families import complete, exponential, get, is_file, resolve
from gossamer.topology.graph import Graph, row_numbers
from gossamer.topology.mixing import weigh
from gossamer.topology.topology import Needs, Topology

log = logging.getLogger("gossamer")


def regraph(given: Topology | str, present: Sequence[int], needs: Needs | None = None) -> Topology:
    """The graph of the nodes `present`, in ascending order, where all nodes together have the graph `given`.

    A family (a name, or what `topology.ring(8)` and its like make) is made for the new number of nodes. If there is
    none of that size, such as a hypercube of 7, the exponential graph is taken, and the log says so. A graph of your
    own loses the nodes that are not there. If that would divide it, the lowest-numbered neighbour of those that left
    is joined to one of their neighbours in every other part, so a tree stays a tree; a node that the graph does not
    know is joined to the lowest-numbered one. Its weights are Metropolis weights. If `needs` asks for eigenvalues that
    only lazy weights have, they are lazy.

    The answer depends on nothing but the arguments: after everybody has returned, the graph is the given one.

    >>> from gossamer import topology
    >>> regraph("ring", [0, 1, 3]), regraph(topology.hypercube(8), [0, 1, 2, 3])
    (Topology('ring', n=3, degree=2, period=1), Topology('hypercube', n=4, degree=2, period=1))
    >>> star = topology.from_edges([(0, 1), (0, 2), (0, 3)])
    >>> regraph(star, [1, 2, 3]).graph.edges.tolist()
    [[0, 1], [0, 2]]
    """
    nodes = sorted(set(present))
    if not nodes or nodes[0] < 0:
        raise InputError(f"A graph needs at least one node, numbered from 0 on, but the nodes present are {nodes}.")
    if isinstance(given, str):
        resolve(given, 1, one_node_needs_none=True)  # refuses a name that does not exist
        if is_file(given):
            given = get(given)
    if isinstance(given, Topology) and nodes == list(range(given.n)):
        return given
    if len(nodes) == 1:
        return complete(1)
    of_size = partial(get, given) if isinstance(given, str) else given.of_size
    graph = _healed(get(given), nodes) if of_size is None else _of_family(of_size, len(nodes))
    return graph if needs is None else _suited(graph, needs)


def _of_family(of_size: Callable[[int], Topology], n: int) -> Topology:
    """The graph of the family for n nodes, or the exponential graph if there is none."""
    try:
        return of_size(n)
    except InputError as error:
        log.warning("%s The %d nodes that are there use the exponential graph.", error, n)
        return exponential(n)


def _suited(graph: Topology, needs: Needs) -> Topology:
    """The same with lazy weights, if the needs of a method ask for them."""
    try:
        needs.check("", graph)
    except InputError:
        return graph.lazy()
    return graph


def _healed(given: Topology, nodes: list[int]) -> Topology:
    """A graph of the user's own without the nodes that are not there, connected again; every round by itself."""
    size = max(given.n, nodes[-1] + 1)
    places = np.full(size, -1)
    places[nodes] = np.arange(len(nodes))
    bridges = np.array(_bridges(given.graph.edges.tolist(), nodes, size), dtype=np.int64).reshape(-1, 2)
    rounds = []
    for mixing in given.mixings:
        pairs = np.stack([row_numbers(mixing.indptr), mixing.indices], axis=1)
        kept = places[np.concatenate([pairs[pairs[:, 0] != pairs[:, 1]], bridges])]
        rounds.append(weigh(Graph(len(nodes), kept[(kept >= 0).all(axis=1)])))
    labels = given.labels and [given.labels[node] if node < given.n else f"node {node}" for node in nodes]
    return Topology(given.name, rounds, labels)


def _bridges(edges: list[list[int]], nodes: list[int], size: int) -> list[tuple[int, int]]:
    """As few edges as join the parts into which a graph falls when only `nodes` are left."""
    present, parts, gaps = set(nodes), _Parts(size), _Parts(size)
    for i, j in edges:
        if i in present and j in present:
            parts.join(i, j)
        elif i not in present and j not in present:
            gaps.join(i, j)
    around: dict[int, set[int]] = {}  # the neighbours of those that left and were joined to each other
    for i, j in edges:
        if (i in present) != (j in present):
            here, gone = (i, j) if i in present else (j, i)
            around.setdefault(gaps.of(gone), set()).add(here)
    groups = [*(sorted(group) for group in around.values()), nodes]
    return [(group[0], other) for group in groups for other in group[1:] if parts.join(group[0], other)]


class _Parts:
    """Nodes in disjoint parts that are joined one by one."""

    def __init__(self, size: int) -> None:
        self._above = list(range(size))

    def of(self, node: int) -> int:
        """The node that stands for the part of `node`."""
        while self._above[node] != node:
            node = self._above[node]
        return node

    def join(self, i: int, j: int) -> bool:
        """Make one part of two; False if they were one already."""
        i, j = self.of(i), self.of(j)
        self._above[max(i, j)] = min(i, j)
        return i != j
