import logging
import pickle

import numpy as np
import pytest

import gossamer.topology as gt
from gossamer.errors import InputError
from gossamer.topology import Needs, regraph

LAZY = Needs(static=True, symmetric=True, smallest_eigenvalue=-1 / 3)
SPECS = {
    **dict.fromkeys(gt.names(), ""),
    "random-regular": ":degree=4",
    "erdos-renyi": ":probability=0.6",
    "lossy": ":graph=ring,drop=0.1",
}


@pytest.mark.parametrize("name", SPECS)
def test_a_family_by_its_name_or_as_an_object_is_made_for_the_new_size(name):
    spec = name + SPECS[name]
    whole = gt.get(spec, 16)
    for present in (range(16), [1, 2, 3, 5, 8, 9, 12, 15], range(6)):
        by_name, by_object = regraph(spec, present), regraph(whole, present)
        assert by_name.fingerprint == by_object.fingerprint
        if name != "hypercube" or len(present) != 6:
            assert by_object.fingerprint == gt.get(spec, len(present)).fingerprint
    assert regraph(whole, range(16)) is whole
    assert pickle.loads(pickle.dumps(whole)).of_size(8).fingerprint == gt.get(spec, 8).fingerprint


def test_weights_and_parameters_go_along():
    lazy = regraph(gt.get("ring", 8, weights="lazy"), range(7))
    assert lazy.fingerprint == gt.ring(7).lazy().fingerprint
    assert regraph(gt.one_peer_exponential(8).lazy(), range(5)).name == "lazy one-peer-exponential"
    lossy = gt.lossy(gt.chain(8), drop=0.3, period=7, seed=2)
    assert regraph(lossy, range(5)).fingerprint == gt.lossy(gt.chain(5), drop=0.3, period=7, seed=2).fingerprint
    assert regraph(gt.base(8, degree=2), range(5)).fingerprint == gt.base(5, degree=2).fingerprint


def test_a_size_that_the_family_does_not_have_falls_back_to_the_exponential_graph_with_a_sentence(caplog):
    for given in ("hypercube", gt.hypercube(8)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="gossamer"):
            assert regraph(given, range(7)).fingerprint == gt.exponential(7).fingerprint
        assert caplog.messages == [
            "A hypercube has a power of two of nodes, not 7; use 4 or 8. "
            "The 7 nodes that are there use the exponential graph."
        ]
    assert regraph(gt.random_regular(8, degree=3), range(7)).name == "exponential"


def test_a_graph_of_ones_own_loses_the_node_and_its_edges():
    square = gt.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")])
    left = regraph(square, [0, 2, 3])
    assert left.labels == ("a", "c", "d")
    assert left.graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(left.at(0).dense(), np.full((3, 3), 1 / 3))


def test_a_graph_that_would_fall_apart_is_joined_by_the_lowest_neighbour_of_those_that_left():
    tree = gt.from_edges([(0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (5, 6)])
    left = regraph(tree, [0, 2, 4, 5, 6])  # 1 and 3 were neighbours: one gap, between 0, 2, 4 and 5
    assert left.graph.edges.tolist() == [[0, 1], [0, 2], [0, 3], [3, 4]]
    assert regraph(tree, [0, 2, 3, 4, 5, 6]).graph.edges.tolist() == [[0, 1], [0, 2], [2, 3], [2, 4], [4, 5]]


def test_any_graph_stays_connected_whoever_leaves_and_a_tree_stays_a_tree():
    rng = np.random.default_rng(0)
    for seed in range(30):
        n = int(rng.integers(3, 14))
        tree = [(int(rng.integers(child)), child) for child in range(1, n)]
        extra = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.1 * (seed % 3)]
        given = gt.from_edges([*tree, *extra])
        present = np.flatnonzero(rng.random(n) < 0.6).tolist() or [n - 1]
        left = regraph(given, present)  # a Topology is connected and doubly stochastic, or it is refused
        assert left.n == len(present)
        assert left.is_symmetric
        assert not given.is_tree or left.is_tree
        kept = {(i, j) for i, j in given.graph.edges.tolist() if {i, j} <= set(present)}
        assert kept <= {(present[i], present[j]) for i, j in left.graph.edges.tolist()}


def test_a_schedule_of_ones_own_stays_one():
    given = gt.in_turn([gt.Graph(4, [(0, 1), (2, 3)]), gt.Graph(4, [(1, 2), (3, 0)])])
    left = regraph(given, [0, 1, 3])
    assert left.period == 2
    assert [mixing.degree for mixing in left.mixings] == [1, 1]
    assert regraph(given, [0, 2]).graph.edges.tolist() == [[0, 1]]


def test_a_node_that_the_graph_does_not_know_is_joined_to_the_lowest():
    given = gt.from_edges([("a", "b"), ("b", "c")])
    more = regraph(given, [1, 2, 3])
    assert (more.labels, more.graph.edges.tolist()) == (("b", "c", "node 3"), [[0, 1], [0, 2]])


def test_lazy_weights_where_a_method_needs_them():
    assert regraph("ring", range(6), LAZY).name == "lazy ring"
    assert regraph("ring", range(7), LAZY).name == "ring"
    assert regraph(gt.hypercube(8).lazy(), range(7), LAZY).smallest_eigenvalue > -1 / 3


def test_files_are_graphs_of_ones_own(tmp_path):
    path = tmp_path / "star.txt"
    path.write_text("hub a\nhub b\nhub c\n")
    left = regraph(f"file:{path}", [1, 2, 3])
    assert left.labels == ("a", "b", "c")


def test_one_node_needs_no_graph():
    assert regraph("hypercube", [5]).n == regraph(gt.ring(8), [5]).n == regraph("random-regular:degree=4", [0]).n == 1


def test_bad_input_is_one_sentence():
    with pytest.raises(InputError, match="at least one node"):
        regraph("ring", [])
    with pytest.raises(InputError, match="There is no topology 'wring'"):
        regraph("wring", range(4))
    with pytest.raises(InputError, match="degre"):
        regraph("random-regular:degre=4", range(4))
