import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import DiskError, GossamerError
from gossamer.topology import chain, from_edges, from_file, from_matrix, from_matrix_file, from_networkx, ring, star


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 20), st.integers(0, 100))
def test_networkx_round_trip(n, seed):
    source = nx.random_labeled_tree(n, seed=seed)
    source.add_edges_from(nx.gnp_random_graph(n, 0.2, seed=seed).edges)
    topology = from_networkx(source)
    back = nx.Graph()
    back.add_nodes_from(range(n))
    back.add_edges_from(topology.graph.edges.tolist())
    assert nx.utils.graphs_equal(nx.Graph(source.edges) if n > 1 else source, nx.Graph(back.edges) if n > 1 else back)
    assert topology.labels is None
    assert topology.diameter == nx.diameter(source)
    assert topology.is_tree == nx.is_tree(source)


def test_networkx_names_and_order():
    topology = from_networkx(nx.Graph([("b", "a"), ("a", "c")]), weights="lazy")
    assert topology.labels == ("b", "a", "c")
    assert topology.graph.neighbours(1).tolist() == [0, 2]
    assert topology.name == "lazy networkx"
    scrambled = nx.Graph()
    scrambled.add_edges_from([(2, 1), (1, 0)])
    assert from_networkx(scrambled).fingerprint == chain(3).fingerprint
    assert from_networkx(nx.MultiGraph([(0, 1), (0, 1)])).degree == 1
    assert from_networkx(nx.grid_2d_graph(2, 2)).labels == ("(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)")


def test_edges():
    assert from_edges([(0, 1), (1, 2), (2, 0)]).fingerprint == ring(3).fingerprint
    assert from_edges([(2, 1), (1, 0)]).labels is None
    assert from_edges([(1, 2), (2, 3)]).labels == ("1", "2", "3")
    assert from_edges([("00", "1")]).labels == ("00", "1")
    assert from_edges([(np.int64(0), 1)]).labels is None
    assert from_edges([(False, True)]).labels == ("False", "True")


def test_edge_list_file(tmp_path):
    path = tmp_path / "cities.txt"
    path.write_text("# who can reach whom\nBerlin Lima   # a cable\n\nLima Tokyo\nTokyo\tBerlin\nLima Berlin\n")
    topology = from_file(path)
    assert topology.labels == ("Berlin", "Lima", "Tokyo")
    assert topology.fingerprint == ring(3).fingerprint
    assert topology.name == "cities"
    path.write_text("0 2\n0 1\n")
    assert from_file(str(path)).fingerprint == star(3).fingerprint
    assert from_file(path).labels is None


def test_matrix():
    topology = from_matrix([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]], labels=["x", "y", "z"])
    assert topology.at(0).senders(0).tolist() == [1]
    assert topology.labels == ("x", "y", "z")
    assert topology.p == pytest.approx(0.75)
    assert from_matrix([[1.0]]).p == 1
    no_self = (np.ones((4, 4)) - np.eye(4)) / 3
    assert from_matrix(no_self).p == pytest.approx(8 / 9)


def test_matrix_file(tmp_path):
    path = tmp_path / "weights.csv"
    np.savetxt(path, ring(5).at(0).dense(), delimiter=",")
    assert from_matrix_file(path).fingerprint == ring(5).fingerprint
    np.savetxt(path, ring(5).at(0).dense(), header="a comment")
    assert from_matrix_file(path).fingerprint == ring(5).fingerprint
    path.write_text("1\n")
    assert from_matrix_file(path).n == 1


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: from_networkx([(0, 1)]), "needs a networkx graph, not list"),
        (lambda: from_networkx(nx.DiGraph([(0, 1)])), "is directed.*to_undirected"),
        (lambda: from_networkx(nx.Graph()), "has no nodes"),
        (lambda: from_networkx(nx.Graph([(0, 1), (2, 3)])), "not connected: no path joins node 0 and node 2"),
        (lambda: from_networkx(nx.Graph([("a", "b"), ("c", "d")])), "not connected: no path joins node a and node c"),
        (lambda: from_networkx(nx.Graph([(0, 0), (0, 1)])), "Node 0 is joined to itself"),
        (lambda: from_edges([]), "has no edges"),
        (lambda: from_edges([("a", "b", "c")]), "An edge joins two nodes, but one of 'edges' lists 3"),
        (lambda: from_edges([("a", "b"), ("b", "b")]), "Node b is joined to itself"),
        (lambda: from_matrix([[0.9, 0.0], [0.0, 1.0]]), "Row 0 of the mixing matrix sums to 0.9"),
        (lambda: from_matrix([[1.0, 0.0], [0.0, 1.0]]), "'matrix' is not connected"),
        (lambda: from_matrix([[0, 1], [1, 0]]), "never averages them"),
    ],
)
def test_bad_input(build, sentence):
    with pytest.raises(GossamerError, match=sentence):
        build()


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (from_file, b"a b\na b 0.5\n", "Line 2 of '.*' must name the two nodes of an edge, but it holds 3 words"),
        (from_file, b"# nothing\n", "has no edges"),
        (from_file, b"a b\nc d\n", "no path joins node a and node c"),
        (from_file, b"\xff\xfe\x00", "is not a text file in UTF-8"),
        (from_matrix_file, b"\n# nothing\n", "is empty"),
        (from_matrix_file, b"1 0\n0\n", "rows of equally many numbers"),
        (from_matrix_file, b"one\n", "rows of equally many numbers"),
        (from_matrix_file, b"0.5,0.5\n", "square array of numbers"),
    ],
)
def test_bad_files(tmp_path, read, text, sentence):
    path = tmp_path / "input"
    path.write_bytes(text)
    with pytest.raises(GossamerError, match=sentence):
        read(path)


@pytest.mark.parametrize(("read", "text"), [(from_file, "0 1\n1 2\n"), (from_matrix_file, "0.5,0.5\n0.5,0.5\n")])
def test_a_byte_order_mark_changes_nothing(tmp_path, read, text):
    path = tmp_path / "input"
    path.write_text(text)
    plain = read(path)
    path.write_text(text, encoding="utf-8-sig")
    assert (read(path).fingerprint, read(path).labels) == (plain.fingerprint, plain.labels)


@pytest.mark.parametrize("read", [from_file, from_matrix_file])
def test_unreadable_files(tmp_path, read):
    with pytest.raises(DiskError, match="There is no file"):
        read(tmp_path / "missing")
    with pytest.raises(DiskError, match=r"Cannot read .*: Is a directory"):
        read(tmp_path)
