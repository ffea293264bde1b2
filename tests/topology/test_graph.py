from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import GossamerError
from gossamer.topology import Graph, chain, random_regular, ring, torus
from gossamer.topology import graph as module


def naive_diameter(graph):
    largest = 0
    for source in range(graph.n):
        hops = {source: 0}
        queue = deque([source])
        while queue:
            i = queue.popleft()
            for j in graph.neighbours(i).tolist():
                if j not in hops:
                    hops[j] = hops[i] + 1
                    queue.append(j)
        largest = max(largest, *hops.values())
    return largest


@st.composite
def connected_graphs(draw):
    n = draw(st.integers(1, 40))
    parents = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    extra = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    return Graph(n, parents + (draw(st.lists(extra, max_size=n)) if n > 1 else []))


def test_edges_are_sorted_unique_and_ascending():
    graph = Graph(4, [(3, 0), (1, 0), (0, 1), (2, 3)])
    assert graph.edges.tolist() == [[0, 1], [0, 3], [2, 3]]
    assert [graph.neighbours(i).tolist() for i in range(4)] == [[1, 3], [0], [3], [0, 2]]
    assert graph.degrees.tolist() == [2, 1, 1, 2]


def test_facts_of_small_graphs():
    path, square, alone, apart = Graph(3, [(0, 1), (1, 2)]), ring(4).graph, Graph(1), Graph(3, [(0, 1)])
    assert (path.is_tree, path.is_regular, path.is_connected, path.diameter) == (True, False, True, 2)
    assert (square.is_tree, square.is_regular, square.is_connected, square.diameter) == (False, True, True, 2)
    assert (alone.is_tree, alone.is_regular, alone.is_connected, alone.diameter) == (True, True, True, 0)
    assert not apart.is_connected
    assert not apart.is_tree
    assert apart.unreachable == 2
    with pytest.raises(GossamerError, match="no path joins node 0 and node 2"):
        _ = apart.diameter


@settings(deadline=None, max_examples=50)
@given(connected_graphs())
def test_diameter_is_exact(graph):
    assert graph.diameter == naive_diameter(graph)


@settings(deadline=None, max_examples=50)
@given(connected_graphs(), st.integers(1, 70))
def test_diameter_by_searching_all_nodes_at_once(graph, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SWEEPS", 0)
        patch.setattr(module, "BLOCK", block)
        assert module.diameter(graph.indptr, graph.indices) == naive_diameter(graph)


def test_diameter_of_graphs_that_look_alike_from_everywhere():
    assert torus(400).diameter == 20
    graph = random_regular(200, 3).graph
    assert graph.diameter == naive_diameter(graph)


def test_long_graphs_need_few_searches():
    assert ring(10_000).diameter == 5_000
    assert chain(10_000).diameter == 9_999


def test_graphs_are_immutable_values():
    graph = Graph(3, [(0, 1), (1, 2)], labels=["a", "b", "c"])
    assert graph == Graph(3, [(2, 1), (1, 0)], labels=("a", "b", "c"))
    assert hash(graph) == hash(Graph(3, [(2, 1), (1, 0)], labels=("a", "b", "c")))
    assert graph != Graph(3, [(0, 1), (1, 2)])
    assert graph != "graph"
    assert repr(graph) == "Graph(n=3, edges=2)"
    with pytest.raises(ValueError, match="read-only"):
        graph.edges[0, 0] = 2


@pytest.mark.parametrize(
    ("n", "edges", "labels", "sentence"),
    [
        (0, [], None, "The number of nodes must be a whole number of at least 1, not 0"),
        (2.5, [], None, "not 2.5"),
        (True, [], None, "not True"),
        ("3", [], None, "not '3'"),
        (3, [(0, 3)], None, "An edge names node 3, but the 3 nodes are numbered from 0 to 2"),
        (3, [(-1, 2)], None, "An edge names node -1"),
        (3, [(1, 1)], None, "Node 1 is joined to itself"),
        (3, [(0.5, 1.0)], None, "Edges must be pairs of node numbers"),
        (3, [(0, 1, 2)], None, "Edges must be pairs of node numbers"),
        (2, [(0, 1)], ["a"], "2 nodes need 2 different names"),
        (2, [(0, 1)], ["a", "a"], "2 nodes need 2 different names"),
    ],
)
def test_bad_input(n, edges, labels, sentence):
    with pytest.raises(GossamerError, match=sentence):
        Graph(n, edges, labels)


def test_numpy_integers_are_whole_numbers():
    assert Graph(np.int64(2), np.array([[0, 1]], dtype=np.uint8)).n == 2
