"""Which round nodes agree on, and how far apart they can be."""

import pytest

from gossamer import topology
from gossamer.errors import GossamerError
from gossamer.optim.restart import Holding, Restart, agree, membership, rounds_to_reach_all
from gossamer.topology import Topology

NAMES = ("a", "b", "c")
NOW = membership(NAMES, "ring")


def holdings(*rounds: list[int], nodes: tuple[str, ...] = NAMES, graph: str = "ring") -> list[Holding]:
    """Nodes a, b, c, each with its rounds."""
    word = membership(nodes, graph)
    return [Holding(n, dict.fromkeys(r, word), nodes if r else ()) for n, r in zip(NAMES, rounds, strict=False)]


@pytest.mark.parametrize(
    ("held", "graph", "expected"),
    [
        (holdings([], [], []), "ring", Restart(0, (), exact=False)),
        # The newest round that all have.
        (holdings([10, 20, 30], [20, 30, 40], [10, 20]), "ring", Restart(20, (0, 1, 2), exact=True)),
        # A node that was killed before its very first file makes all start again.
        (holdings([0], [0], []), "ring", Restart(0, (), exact=False)),
        (holdings([0, 10], [0], [0]), "ring", Restart(0, (0, 1, 2), exact=True)),
        # Another graph, and other places in the graph.
        (holdings([10], [10], [10]), "star", Restart(10, (0, 1, 2), exact=False)),
        (holdings([10], [10], [10])[::-1], "ring", Restart(10, (0, 1, 2), exact=False)),
        # A node has left, or has lost its disk.
        (holdings([10, 20], [10]), "ring", Restart(10, (0, 1), exact=False)),
        (holdings([10, 20], [], [10]), "ring", Restart(10, (0, 2), exact=False)),
    ],
)
def test_where_nodes_go_on(held: list[Holding], graph: str, expected: Restart) -> None:
    assert agree(held, graph) == expected


def test_a_node_that_comes_back_from_long_ago_is_new() -> None:
    a, b = holdings([90, 100], [90], nodes=("a", "b"))
    c = holdings([], [], [50, 60])[2]
    assert agree([a, b, c], "ring") == Restart(90, (0, 1), exact=False)


def test_killed_while_the_first_checkpoint_among_other_nodes_was_written() -> None:
    """Some have written the round again, with the new nodes, some not yet: all still have it."""
    before = holdings([20], [20], nodes=("a", "b"))
    after = holdings([20], [20], [20])
    assert agree([after[0], before[1], after[2]], "ring") == Restart(20, (0, 1, 2), exact=False)
    assert agree([after[0], before[1], Holding("c", {})], "ring") == Restart(20, (0, 1), exact=False)


def test_no_common_round_is_an_error_that_lists_them() -> None:
    with pytest.raises(GossamerError, match=r"no checkpoint of the same round \(a: 10; b: 20; c: 10, 20\)"):
        agree(holdings([10], [20], [10, 20]), "ring")


def test_a_name_twice_is_refused() -> None:
    twice = [Holding("a", {}), Holding("a", {})]
    with pytest.raises(GossamerError, match="Several nodes keep their checkpoints under the name 'a'"):
        agree(twice, "ring")


def test_words_carry_everything() -> None:
    holding = Holding("oslo", {3: NOW, 6: NOW}, NAMES)
    assert Holding.from_words(holding.words()) == holding


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


@pytest.mark.parametrize("name", ["ring", "star", "chain", "one-peer-exponential", "random-matchings:period=5,seed=2"])
def test_news_reaches_all(name: str) -> None:
    graph = topology.get(name, 8)
    assert rounds_to_reach_all(graph) == by_hand(graph)
    assert rounds_to_reach_all(topology.complete(1)) == 0
