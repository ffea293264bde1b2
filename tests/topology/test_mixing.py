import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import GossamerError
from gossamer.topology import Graph, Mixing, chain, complete, erdos_renyi, hypercube, ring, star, weigh

THIRDS = np.full((3, 3), 1 / 3)
CYCLE = np.array([[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]])  # node i receives from i - 1


@st.composite
def doubly_stochastic(draw):
    """A random convex combination of permutation matrices."""
    n = draw(st.integers(1, 8))
    permutations = draw(st.lists(st.permutations(range(n)), min_size=1, max_size=4))
    shares = np.array(draw(st.lists(st.integers(1, 5), min_size=len(permutations), max_size=len(permutations))), float)
    return sum(share * np.eye(n)[order] for share, order in zip(shares / shares.sum(), permutations, strict=True))


@settings(deadline=None)
@given(doubly_stochastic())
def test_sparse_storage_says_what_the_dense_matrix_says(matrix):
    mixing = Mixing.from_dense(matrix)
    n = len(matrix)
    x = np.random.default_rng(0).standard_normal((n, 3))
    np.testing.assert_array_equal(mixing.dense(), matrix)
    np.testing.assert_allclose(mixing @ x, matrix @ x, atol=1e-14)
    np.testing.assert_allclose(mixing @ x[:, 0], matrix @ x[:, 0], atol=1e-14)
    np.testing.assert_array_equal(mixing.T.dense(), matrix.T)
    np.testing.assert_allclose(mixing.lazy().dense(), (np.eye(n) + matrix) / 2, atol=1e-16)
    assert mixing.is_symmetric == np.allclose(matrix, matrix.T, rtol=0, atol=1e-12)
    for i in range(n):
        others = np.arange(n) != i
        assert mixing.senders(i).tolist() == np.flatnonzero((matrix[i] != 0) & others).tolist()
        assert mixing.receivers(i).tolist() == np.flatnonzero((matrix[:, i] != 0) & others).tolist()
        row = mixing.indices[mixing.indptr[i] : mixing.indptr[i + 1]].tolist()
        assert row == sorted(row)
        assert i in row
    assert mixing.degree == max(len(mixing.receivers(i)) for i in range(n))


def test_directed_weights_know_senders_and_receivers_apart():
    mixing = Mixing.from_dense(CYCLE)
    assert not mixing.is_symmetric
    assert mixing.senders(0).tolist() == [2]
    assert mixing.receivers(0).tolist() == [1]
    assert repr(mixing) == "Mixing(n=3, degree=1)"


def test_entries_given_twice_add_up_and_weights_are_read_only():
    mixing = Mixing(1, [0, 0], [0, 0], [0.25, 0.75])
    assert mixing.dense().tolist() == [[1.0]]
    with pytest.raises(ValueError, match="read-only"):
        mixing.values[0] = 2


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ([[0.5, 0.5], [0.4, 0.5]], "Row 1 of the mixing matrix sums to 0.9, not to 1"),
        ([[0.5, 0.5], [0.4, 0.6]], r"Column 1 of the mixing matrix sums to 1.1, not to 1|Column 0 .* 0.9"),
        ([[1.5, -0.5], [-0.5, 1.5]], "negative weight -0.5 in row 0, column 1"),
        ([[1.0, float("nan")], [0.0, 1.0]], "not a finite number"),
        ([[1.0, 0.0]], "square array of numbers, not one of shape"),
        ([], "square array of numbers, not one of shape"),
        ([["a"]], "square array of numbers"),
        (THIRDS.astype(np.float32), "double precision"),
        (THIRDS + 1e-11 * np.array([1, -1, 0]), "Column"),
    ],
)
def test_bad_matrices(matrix, sentence):
    with pytest.raises(GossamerError, match=sentence):
        Mixing.from_dense(matrix)


def test_rounding_is_forgiven():
    assert Mixing.from_dense(THIRDS + 1e-14 * np.array([1, -1, 0])).n == 3


def test_what_rounding_does_to_many_entries_is_forgiven():
    nodes = 100_000
    hub = Mixing(
        nodes,
        np.concatenate([np.zeros(nodes, int), np.arange(1, nodes), np.arange(1, nodes)]),
        np.concatenate([np.arange(nodes), np.zeros(nodes - 1, int), np.arange(1, nodes)]),
        np.concatenate([np.full(nodes, 1 / nodes), np.full(nodes - 1, 1 / nodes), np.full(nodes - 1, 1 - 1 / nodes)]),
    )
    assert hub.n == nodes
    assert abs(np.bincount(np.zeros(nodes, int), weights=hub.values[:nodes])[0] - 1) > 1e-12
    with pytest.raises(GossamerError, match=r"Row 1 of the mixing matrix sums to 1\.000000"):
        Mixing(nodes, [0, 1, *range(1, nodes)], [0, 1, *range(1, nodes)], [1.0, 1e-11, *[1.0] * (nodes - 1)])


def test_bad_entries():
    with pytest.raises(GossamerError, match="outside of its 2 nodes"):
        Mixing(2, [0, 2], [0, 1], [1.0, 1.0])
    with pytest.raises(GossamerError, match="one receiver, one sender and one value"):
        Mixing(2, [0, 1], [0, 1], [1.0])


def test_negative_weights_only_when_allowed():
    entries = (2, [0, 0, 1, 1], [0, 1, 0, 1], [1.5, -0.5, -0.5, 1.5])
    assert Mixing(*entries, allow_negative=True).lazy().T.dense()[0, 1] == -0.25
    with pytest.raises(GossamerError, match="negative weight"):
        Mixing(*entries)


def test_a_large_ring_is_mixed_without_a_dense_matrix(monkeypatch):
    monkeypatch.setattr(Mixing, "dense", lambda self: pytest.fail("asked for an N x N matrix"))
    large = ring(10_000)
    x = np.arange(10_000.0)
    mixed = large.at(0) @ x
    np.testing.assert_allclose(mixed[1:-1], x[1:-1], rtol=1e-12)
    assert mixed[0] == pytest.approx((0 + 1 + 9_999) / 3)
    assert len(large.at(0).values) == 30_000
    assert large.p == pytest.approx(1 - ((1 + 2 * np.cos(2 * np.pi / 10_000)) / 3) ** 2, rel=1e-7)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 25), st.integers(0, 5))
def test_metropolis_is_the_formula(n, seed):
    graph = erdos_renyi(n, 0.5, seed).graph
    matrix = weigh(graph).dense()
    degrees = graph.degrees
    for i in range(n):
        for j in range(n):
            if j in graph.neighbours(i):
                assert matrix[i, j] == 1 / (1 + max(degrees[i], degrees[j]))
            elif i != j:
                assert matrix[i, j] == 0
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_array_equal(matrix, matrix.T)


@pytest.mark.parametrize("build", [ring, complete, hypercube])
def test_regular_graphs_get_exactly_equal_weights(build):
    topology = build(16)
    assert set(topology.at(0).values.tolist()) == {1 / (topology.degree + 1)}
    assert build(16, weights="uniform").fingerprint == topology.fingerprint


def test_lazy_is_half_way():
    half = (np.eye(5) + star(5).at(0).dense()) / 2
    np.testing.assert_allclose(star(5, weights="lazy").at(0).dense(), half, atol=1e-16)
    assert star(5, weights="lazy").fingerprint == star(5).lazy().fingerprint
    assert star(5, weights="lazy").name == star(5).lazy().name == "lazy star"


def test_uniform_needs_a_regular_graph():
    with pytest.raises(GossamerError, match=r"degrees here run from 1 to 2; use weights='metropolis'"):
        chain(4, weights="uniform")


def test_unknown_weights_suggest_the_nearest():
    with pytest.raises(GossamerError, match="no kind of weights 'metropolitan'; did you mean 'metropolis'"):
        ring(4, weights="metropolitan")


def test_fastest_needs_a_connected_graph():
    with pytest.raises(GossamerError, match="no path joins node 0 and node 2"):
        weigh(Graph(3, [(0, 1)]), "fastest")
