import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import GossamerError
from gossamer.topology import Graph, chain, complete, erdos_renyi, hypercube, ring, star, weigh


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
