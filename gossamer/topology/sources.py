"""Topologies that users bring: networkx graphs, lists of edges, files, matrices."""

import io
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer._common.files import read_text
from gossamer.errors import InputError
from gossamer.topology.graph import Graph
from gossamer.topology.mixing import Mixing
from gossamer.topology.topology import Topology, on_graph


def from_edges(
    edges: Iterable[tuple[Hashable, Hashable]], weights: str = "metropolis", name: str = "edges"
) -> Topology:
    """A topology from pairs of node names.

    If the names are the integers 0 to n-1 (as numbers or as words) they are the node numbers. Otherwise nodes are
    numbered in the order in which they first appear, and their names are kept as `labels`.

    >>> from_edges([("berlin", "lima"), ("lima", "tokyo")]).labels
    ('berlin', 'lima', 'tokyo')
    """
    pairs = [tuple(edge) for edge in edges]
    for pair in pairs:
        if len(pair) != 2:
            raise InputError(f"An edge joins two nodes, but one of '{name}' lists {len(pair)}: {pair!r}.")
    nodes = list(dict.fromkeys(node for pair in pairs for node in pair))
    if not nodes:
        raise InputError(f"The graph '{name}' has no edges; give at least one pair of nodes.")
    return on_graph(name, _numbered(nodes, pairs), weights)


def from_networkx(graph: Any, weights: str = "metropolis") -> Topology:
    """A topology from an undirected networkx graph; its edge weights are not used, parallel edges count once.

    Nodes named 0 to n-1 keep their numbers; otherwise the order of `graph.nodes` counts and `labels` keeps the names.

    >>> import networkx
    >>> from_networkx(networkx.path_graph(3)).graph.edges.tolist()
    [[0, 1], [1, 2]]
    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "is_directed")):
        raise InputError(f"from_networkx needs a networkx graph, not {type(graph).__name__}.")
    if graph.is_directed():
        raise InputError(
            "The networkx graph is directed, but mixing weights are built for undirected graphs; "
            "call graph.to_undirected(), or give your own doubly stochastic matrix to from_matrix."
        )
    nodes = list(graph.nodes)
    if not nodes:
        raise InputError("The networkx graph has no nodes; give at least one.")
    return on_graph("networkx", _numbered(nodes, [edge[:2] for edge in graph.edges]), weights)


def from_file(path: str | Path, weights: str = "metropolis") -> Topology:
    """A topology from an edge list: one edge `a b` per line, `#` starts a comment, names are any words.

    Names are treated as in `from_edges`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     sites = Path(folder, "sites.txt")
    ...     _ = sites.write_text("berlin lima\\nlima tokyo\\n")
    ...     from_file(sites).labels
    ('berlin', 'lima', 'tokyo')
    """
    edges: list[tuple[str, str]] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if len(words) not in (0, 2):
            raise InputError(
                f"Line {number} of '{path}' must name the two nodes of an edge, but it holds {len(words)} words."
            )
        if words:
            edges.append((words[0], words[1]))
    return from_edges(edges, weights, name=Path(path).stem)


def from_matrix(matrix: npt.ArrayLike, labels: Sequence[str] | None = None, name: str = "matrix") -> Topology:
    """A topology from your own doubly stochastic matrix W[receiver, sender].

    >>> from_matrix([[0.75, 0.25], [0.25, 0.75]]).p
    0.75
    """
    topology = Topology(name, [Mixing.from_dense(matrix)], labels)
    idle = np.any(topology.mixings[0].dense().diagonal() == 0)
    # With a positive weight of its own on every node a connected W always contracts.
    if idle and topology.spectral_gap < 1e-12:
        raise InputError(
            "This mixing matrix only passes vectors around and never averages them (an eigenvalue other than the "
            "first has size 1); give every node a positive weight of its own, for example by (I + W)/2."
        )
    return topology


def from_matrix_file(path: str | Path) -> Topology:
    """A topology from a text file of the matrix: one row per line, numbers separated by commas or blanks.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     weights = Path(folder, "weights.csv")
    ...     _ = weights.write_text("0.5, 0.5\\n0.5, 0.5\\n")
    ...     from_matrix_file(weights).n
    2
    """
    text = read_text(path).replace(",", " ")
    if not any(line.partition("#")[0].strip() for line in text.splitlines()):
        raise InputError(f"The matrix file '{path}' is empty.")
    try:
        matrix = np.loadtxt(io.StringIO(text), ndmin=2)
    except ValueError as error:
        raise InputError(
            f"The matrix file '{path}' must hold rows of equally many numbers, separated by commas or blanks."
        ) from error
    return from_matrix(matrix, name=Path(path).stem)


def _numbered(nodes: Sequence[Hashable], pairs: Iterable[tuple[Hashable, ...]]) -> Graph:
    """The graph with nodes numbered: by their own names if those are 0 to n-1, else in the given order."""
    numbers = {node: _integer(node) for node in nodes}
    if sorted(numbers.values()) == list(range(len(nodes))):
        return Graph(len(nodes), [(numbers[a], numbers[b]) for a, b in pairs])
    places = {node: place for place, node in enumerate(nodes)}
    for a, b in pairs:
        if a == b:
            raise InputError(
                f"Node {a} is joined to itself; "
                f"leave self-loops out, because every node always keeps a share of its own vector."
            )
    return Graph(len(nodes), [(places[a], places[b]) for a, b in pairs], [str(node) for node in nodes])


def _integer(node: Hashable) -> int:
    """The node number that a name spells, -1 for any other name."""
    if isinstance(node, str):
        # Python converts no number of thousands of digits, and no node has one.
        return int(node) if len(node) < 20 and node.isascii() and node.isdecimal() and str(int(node)) == node else -1
    return int(node) if isinstance(node, int | np.integer) and not isinstance(node, bool) else -1
