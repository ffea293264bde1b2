"""Which node of the graph this process is."""

import operator
import os

from gossamer.errors import InputError
from gossamer.topology import Topology

NODE_VARIABLE = "GOSSAMER_NODE"
"""The environment variable that names this process's node where the program does not."""


def own_id(topology: Topology, node: int | str | None, rank: int) -> int:
    """The number of the node that the program, else the environment, else the rank says; a label wins over a number."""
    if node is None and topology.n > 1:
        given = os.environ.get(NODE_VARIABLE, "")
        is_number = given.isdecimal() and given not in (topology.labels or ())
        node = int(given) if is_number else given or None
    if node is None:
        return rank
    if isinstance(node, str):
        labels = topology.labels or ()
        if node not in labels:
            known = ", ".join(labels) or "numbered"
            raise InputError(f"The graph has no node called '{node}'; its nodes are {known}.")
        return labels.index(node)
    try:
        node = operator.index(node)
    except TypeError:
        raise InputError(f"node={node!r} names no node; give a number from 0 on, or a label of the topology.") from None
    if not 0 <= node < topology.n:
        raise InputError(f"node={node} does not exist: the graph has the nodes 0 to {topology.n - 1}.")
    return node
