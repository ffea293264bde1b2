"""Who talks to whom: graphs, mixing weights, schedules of graphs over time, and their spectrum.

>>> from gossamer import topology
>>> t = topology.get("hypercube", 8)
>>> t.degree, t.diameter, round(t.p, 6)
(3, 3, 0.75)
"""

from gossamer.topology.families import (
    balanced_tree,
    chain,
    complete,
    erdos_renyi,
    exponential,
    get,
    grid,
    hypercube,
    names,
    random_regular,
    resolve,
    ring,
    small_world,
    star,
    torus,
)
from gossamer.topology.finite_time import base, simple_base
from gossamer.topology.graph import Graph
from gossamer.topology.mixing import WEIGHTS, Mixing, weigh
from gossamer.topology.present_nodes import regraph
from gossamer.topology.schedules import epidemic, in_turn, lossy, one_peer_exponential, random_matchings
from gossamer.topology.sources import from_edges, from_file, from_matrix, from_matrix_file, from_networkx
from gossamer.topology.topology import Needs, Topology, on_graph

__all__ = [
    "WEIGHTS",
    "Graph",
    "Mixing",
    "Needs",
    "Topology",
    "balanced_tree",
    "base",
    "chain",
    "complete",
    "epidemic",
    "erdos_renyi",
    "exponential",
    "from_edges",
    "from_file",
    "from_matrix",
    "from_matrix_file",
    "from_networkx",
    "get",
    "grid",
    "hypercube",
    "in_turn",
    "lossy",
    "names",
    "on_graph",
    "one_peer_exponential",
    "random_matchings",
    "random_regular",
    "regraph",
    "resolve",
    "ring",
    "simple_base",
    "small_world",
    "star",
    "torus",
    "weigh",
]
