import pytest

from gossamer import topology
from gossamer.network.spreading import rounds_to_reach_all
from gossamer.topology import Topology


def by_hand(graph: Topology) -> int:
    """Every node, from every round on, told one by one."""
    longest = 0
    for start in range(graph.period):
        for source in range(graph.n):
            knows, r = {source}, 0
            while len(knows) < graph.n:
                knows |= {int(i) for j in knows for i in graph.at(start + r).receivers(j)}
                r += 1
            longest = max(longest, r)
    return longest


@pytest.mark.parametrize(
    "name", ["ring", "star", "chain", "complete", "one-peer-exponential", "random-matchings:period=5,seed=2"]
)
def test_news_reaches_all(name: str) -> None:
    graph = topology.get(name, 8)
    assert rounds_to_reach_all(graph) == by_hand(graph)


def test_one_node_knows_at_once() -> None:
    assert rounds_to_reach_all(topology.complete(1)) == 0
