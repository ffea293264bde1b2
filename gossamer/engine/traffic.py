"""How many bytes a method moves."""

from gossamer.methods import Method
from gossamer.topology import Topology


def bytes_per_node(method: Method, topology: Topology, dim: int, width: int, rounds: int) -> float:
    """What a node has sent after `rounds` rounds, the mean over the nodes.

    A method sends `facts.sends` vectors of `dim` numbers, `width` bytes each, over every edge in every round. An
    all-reduce counts as a ring all-reduce does: 2 (N - 1)/N vectors for each node; `facts.starts_with_all_reduce` adds
    one to the first round. What a method that overlaps sends in a round is mixed with the weights of the next.
    """
    vector = dim * width
    all_reduce = 2 * (topology.n - 1) / topology.n * vector
    if method.facts.sends == "all-reduce":
        return rounds * all_reduce
    # Every entry of W beside a node's own is one message.
    edges = [(len(mixing.indices) - mixing.n) / mixing.n for mixing in topology.mixings]
    if method.facts.overlaps:
        edges = edges[1:] + edges[:1]
    whole, rest = divmod(rounds, topology.period)
    degrees = whole * sum(edges) + sum(edges[:rest])
    start = all_reduce if rounds and method.facts.starts_with_all_reduce else 0.0
    return method.facts.sends * vector * degrees + start
