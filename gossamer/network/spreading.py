"""How fast word gets around."""

import numpy as np

from gossamer.topology import Topology


def rounds_to_reach_all(topology: Topology) -> int:
    """The most rounds that news needs from any node to all others, whenever it starts: the diameter of a static graph.

    Since a node makes a round only with what its neighbours sent in the round before, no two nodes are ever further
    apart than this many rounds.

    >>> from gossamer.topology import chain, one_peer_exponential
    >>> rounds_to_reach_all(chain(5)), rounds_to_reach_all(one_peer_exponential(8))
    (4, 3)
    """
    if topology.is_static and topology.is_symmetric:
        return topology.diameter
    hears = [mixing.dense() != 0 for mixing in topology.mixings]
    longest = 0
    for start in range(topology.period):
        knows = np.eye(topology.n, dtype=bool)
        rounds = 0
        while not knows.all():
            knows |= hears[(start + rounds) % topology.period].astype(np.float32) @ knows.astype(np.float32) > 0
            rounds += 1
        longest = max(longest, rounds)
    return longest
