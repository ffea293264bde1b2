import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as gt
from gossamer.topology import Mixing
from gossamer.topology import topology as spectrum


def dense_contraction(topology):
    product = np.eye(topology.n)
    for mixing in topology.mixings:
        product = mixing.dense() @ product
    return np.linalg.svd(product - 1 / topology.n, compute_uv=False)[0]


def sample(n, seed):
    return [
        gt.ring(n),
        gt.chain(n),
        gt.star(n).lazy(),
        gt.erdos_renyi(n, 0.5, seed),
        gt.one_peer_exponential(n),
        gt.one_peer_exponential(n).lazy(),
        gt.in_turn([gt.one_peer_exponential(n), gt.star(n)]),
        gt.random_matchings(n, 3 * n, seed),
    ]


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 24), st.integers(0, 100))
def test_fourier_dense_and_lanczos_agree_with_the_definition(n, seed):
    for topology in sample(n, seed):
        expected = dense_contraction(topology)
        assert spectrum.contraction(topology.mixings) == pytest.approx(expected, abs=1e-10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spectrum, "DENSE_LIMIT", 0)
            patch.setattr(spectrum, "DENSE_PRODUCT_LIMIT", 0)
            patch.setattr(spectrum, "_fourier", lambda mixing: None)
            assert spectrum.contraction(topology.mixings) == pytest.approx(expected, abs=1e-10)
            if topology.is_static and topology.is_symmetric:
                eigenvalues = np.linalg.eigvalsh(topology.at(0).dense())
                low, high = spectrum.extreme_eigenvalues(topology.at(0))
                assert low == pytest.approx(eigenvalues[0], abs=1e-9)
                assert high == pytest.approx(eigenvalues[-2], abs=1e-9)


def test_lanczos_resolves_a_small_gap():
    n = 1100
    gap = 1 - (1 + 2 * math.cos(math.pi / n)) / 3  # 2.7e-6
    topology = gt.chain(n)
    assert topology.spectral_gap == pytest.approx(gap, rel=1e-6)
    assert topology.smallest_eigenvalue == pytest.approx((1 - 2 * math.cos(math.pi / n)) / 3, abs=1e-8)


def test_lanczos_on_large_graphs_matches_closed_forms():
    side = 40
    closed = 1 - (2 - 2 * math.cos(2 * math.pi / side)) / 5
    assert 1 - gt.torus(side * side).spectral_gap == pytest.approx(closed, abs=1e-10)
    assert 1 - gt.star(2000).spectral_gap == pytest.approx(1 - 1 / 2000, abs=1e-12)


def test_lanczos_on_large_schedules():
    both = gt.in_turn([gt.grid(400), gt.torus(400)])
    some = gt.random_matchings(300, period=8)
    assert some.spectral_gap == pytest.approx(1 - dense_contraction(some), abs=1e-7)
    assert both.p > max(gt.grid(400).p, gt.torus(400).p)


def test_schedules_that_average_exactly():
    n = 300
    exact = gt.in_turn([gt.complete(n), gt.chain(n)])
    assert exact.p == 1
    assert exact.spectral_gap == 1


def test_an_almost_circulant_matrix_is_not_taken_for_one():
    matrix = gt.ring(6).at(0).dense()
    bump = 0.1 * (np.eye(6)[[1, 0, 2, 3, 4, 5]] - np.eye(6))
    mixing = Mixing.from_dense(matrix + bump)
    expected = np.sort(np.abs(np.linalg.eigvalsh(matrix + bump)))[-2]
    assert spectrum.contraction([mixing]) == pytest.approx(expected, abs=1e-12)


def test_lanczos_on_a_tree():
    tree = gt.balanced_tree(255)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spectrum, "DENSE_LIMIT", 0)
        sparse = gt.balanced_tree(255).spectral_gap
    assert sparse == pytest.approx(tree.spectral_gap, rel=1e-6)
