"""Whom a node hears and tells."""

from collections.abc import Iterable
from dataclasses import dataclass

from gossamer.topology import Topology


@dataclass(frozen=True)
class Plan:
    """What a node does in a round: the nodes it hears, those it tells, and W_ij for all it hears and itself."""

    senders: list[int]
    receivers: list[int]
    terms: list[tuple[int, float]]


def both_ways(peers: Iterable[int]) -> Plan:
    """Tell all peers and hear all of them, without weights.

    >>> both_ways([1, 3])
    Plan(senders=[1, 3], receivers=[1, 3], terms=[])
    """
    nodes = [int(j) for j in peers]
    return Plan(nodes, nodes, [])


class Plans:
    """The plan of every round for one node, made when it is first asked for.

    >>> from gossamer import topology
    >>> Plans(topology.one_peer_exponential(4), node=0).at(1)
    Plan(senders=[2], receivers=[2], terms=[(0, 0.5), (2, 0.5)])
    """

    def __init__(self, topology: Topology, node: int) -> None:
        self._topology, self._node = topology, node
        self._made: list[Plan | None] = [None] * topology.period

    def at(self, round: int) -> Plan:
        """The plan of a round, counted from 0."""
        index = round % len(self._made)
        plan = self._made[index]
        if plan is None:
            mixing, node = self._topology.at(index), self._node
            row = slice(mixing.indptr[node], mixing.indptr[node + 1])
            plan = Plan(
                [int(j) for j in mixing.senders(node)],
                [int(j) for j in mixing.receivers(node)],
                list(zip(mixing.indices[row].tolist(), mixing.values[row].tolist(), strict=True)),
            )
            self._made[index] = plan
        return plan
