import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as gt
from gossamer.topology.fastest import best_constant, central_path, edge_classes


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


SIZES = (2, 3, 4, 5, 8, 16, 32, 33, 64)


def second_eigenvalue(graph, weights):
    """The largest |eigenvalue| of I - B diag(w) B^T - J, written out edge by edge."""
    matrix = np.eye(graph.n) - 1 / graph.n
    for (i, j), weight in zip(graph.edges.tolist(), weights, strict=True):
        b = np.zeros(graph.n)
        b[i], b[j] = 1, -1
        matrix -= weight * np.outer(b, b)
    return np.abs(np.linalg.eigvalsh(matrix)).max()


def laplacian_ratio(low, high):
    return (high - low) / (high + low)


def ring_optimum(n):
    return laplacian_ratio(2 - 2 * math.cos(2 * math.pi / n), 2 - 2 * math.cos(2 * math.pi * (n // 2) / n))


def hypercube_optimum(n):
    return laplacian_ratio(2, 2 * math.log2(n))


CLOSED_FORMS = {
    "ring": (gt.ring, ring_optimum, SIZES[1:]),
    "star": (gt.star, lambda n: (n - 1) / (n + 1), SIZES[1:]),
    "complete": (gt.complete, lambda n: 0.0, SIZES),
    "hypercube": (gt.hypercube, hypercube_optimum, (2, 4, 8, 16, 32, 64)),
    "chain": (gt.chain, lambda n: math.cos(math.pi / n), SIZES),
}
CASES = [(name, n) for name, (_, _, sizes) in CLOSED_FORMS.items() for n in sizes]


@pytest.mark.parametrize(("name", "n"), CASES)
def test_closed_forms(name, n):
    build, optimum, _ = CLOSED_FORMS[name]
    topology = build(n, weights="fastest")
    assert 1 - topology.spectral_gap == pytest.approx(optimum(n), abs=1e-9)
    assert topology.is_symmetric
    assert topology.name == f"fastest {name}"


def test_star_weights_are_the_closed_form():
    matrix = gt.star(9, weights="fastest").at(0).dense()
    np.testing.assert_allclose(matrix[0, 1:], 2 / 10, atol=1e-12)
    assert matrix[0, 0] == pytest.approx(1 - 8 * 0.2)


@pytest.mark.parametrize("build", [gt.ring, gt.star, gt.complete, gt.hypercube, gt.chain])
def test_one_node(build):
    assert build(1, weights="fastest").p == 1


@pytest.mark.parametrize(("name", "n"), [(name, n) for name, n in CASES if n <= 16 or name != "complete"])
def test_the_barrier_method_finds_the_closed_forms_without_symmetry(name, n):
    build, optimum, _ = CLOSED_FORMS[name]
    graph = build(n).graph
    start = best_constant(graph) * 0.7  # off the known answer
    weights = central_path(graph, np.arange(len(graph.edges)), start)
    assert second_eigenvalue(graph, weights) == pytest.approx(optimum(n), abs=1e-6)


@pytest.mark.parametrize(
    "topology", [gt.exponential(16), gt.grid(12), gt.balanced_tree(15), gt.small_world(12), gt.chain(7)]
)
def test_equal_weights_on_edges_that_look_alike_lose_nothing(topology):
    graph = topology.graph
    shared = second_eigenvalue(graph, central_path(graph, edge_classes(graph), best_constant(graph)))
    alone = second_eigenvalue(graph, central_path(graph, np.arange(len(graph.edges)), best_constant(graph)))
    assert shared == pytest.approx(alone, abs=1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(3, 12), st.integers(0, 1000))
def test_nothing_nearby_is_better(n, seed):
    graph = gt.erdos_renyi(n, 0.5, seed).graph
    topology = gt.get("erdos-renyi:probability=0.5", n, weights="fastest", seed=seed)
    best = 1 - topology.spectral_gap
    assert best <= 1 - gt.erdos_renyi(n, 0.5, seed).spectral_gap + 1e-9
    i, j = graph.edges.T
    weights = topology.at(0).dense()[i, j]
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(10):
            assert second_eigenvalue(graph, weights + size * rng.standard_normal(len(weights))) >= best - 1e-7


@pytest.mark.parametrize(
    ("topology", "count"),
    [(gt.hypercube(16), 1), (gt.star(7), 1), (gt.complete(6), 1), (gt.ring(9), 1), (gt.chain(6), 3), (gt.grid(9), 2)],
)
def test_edges_that_look_alike(topology, count):
    assert edge_classes(topology.graph).max() + 1 == count


def test_the_number_of_threads_is_left_alone():
    torch.set_num_threads(2)
    gt.chain(5, weights="fastest")
    assert torch.get_num_threads() == 2
