"""From which round, and how, nodes resume that each know which checkpoints they hold."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.errors import PeerError
from gossamer.topology import Topology


class NoCommonRound(PeerError):
    """There is no round of which all nodes have a checkpoint."""


@dataclass(frozen=True)
class Holding:
    """What one node says of its checkpoints."""

    name: str
    """The name under which it keeps them, which stays when ranks and numbers change."""
    rounds: dict[int, str]
    """For every round it has, which nodes took part and on which graph, as a `membership`."""
    nodes: tuple[str, ...] = ()
    """The names of all nodes that took part in the newest."""

    def words(self) -> dict[str, Any]:
        """As plain words, to be told to all."""
        return {"name": self.name, "rounds": list(self.rounds.items()), "nodes": list(self.nodes)}

    @classmethod
    def from_words(cls, words: dict[str, Any]) -> "Holding":
        """What `words` says."""
        return cls(words["name"], dict(words["rounds"]), tuple(words["nodes"]))


@dataclass(frozen=True)
class Restart:
    """Where all nodes resume."""

    round: int
    holders: tuple[int, ...]
    """The nodes that resume from a checkpoint of their own; the others are new."""
    exact: bool
    """Whether nodes and graph are those of the checkpoints, so that nothing is lost."""


def membership(names: Sequence[str], graph: str) -> str:
    """A short word that is the same for the same nodes in the same places of the same graph."""
    return hashlib.sha256(json.dumps([list(names), graph]).encode()).hexdigest()[:16]


def agree(told: Sequence[Holding], graph: str) -> Restart:
    """The newest round that all nodes have which took part in it; the same answer on every node.

    Nodes that did not take part in the newest checkpoint of all, or have lost theirs, are new. At round 0
    nothing is lost by starting again, so no node continues from there among other nodes.
    """
    names = [holding.name for holding in told]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PeerError(
            f"Several nodes keep their checkpoints under the name '{twice}'; give each a name of its own: by node= of "
            f"the optimizer, or by name= of Checkpoints."
        )
    newest = max((max(h.rounds) for h in told if h.rounds), default=None)
    members = {name for h in told if newest in h.rounds for name in h.nodes}
    holders = tuple(i for i, h in enumerate(told) if h.rounds and h.name in members)
    if not holders:
        return Restart(0, (), exact=False)
    common = set.intersection(*(set(told[i].rounds) for i in holders))
    if not common:
        has = "; ".join(f"{told[i].name}: {', '.join(map(str, sorted(told[i].rounds)))}" for i in holders)
        raise NoCommonRound(
            f"The nodes hold no checkpoint of the same round ({has}), so they cannot resume together; put back the "
            f"files that are missing, or move away those of the nodes that are to start as new ones."
        )
    round = max(common)
    now = membership(names, graph)
    exact = len(holders) == len(told) and all(told[i].rounds[round] == now for i in holders)
    return Restart(round, holders if exact or round > 0 else (), exact)


def rounds_to_reach_all(topology: Topology) -> int:
    """The most rounds that information needs from any node to all others, whenever it starts: the diameter if static.

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
