import subprocess
import sys

import numpy as np
import pytest

import gossamer.topology as gt
from gossamer.errors import GossamerError
from gossamer.topology import Graph, Mixing, Topology, chain, in_turn, one_peer_exponential, ring, star, weigh

CYCLE = [[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]]


def test_facts():
    topology = ring(25)
    assert repr(topology) == "Topology('ring', n=25, degree=2, period=1)"
    assert topology.mixing_constant == topology.p
    assert topology.spectral_gap == pytest.approx(1 - np.sqrt(1 - topology.p))
    assert topology.at(0) is topology.at(17)
    assert (topology.is_static, topology.is_symmetric, topology.is_tree) == (True, True, False)
    assert (star(5).is_tree, chain(5).is_tree, in_turn([chain(5), chain(5)]).is_tree) == (True, True, False)


def test_degree_counts_messages_and_the_graph_is_the_union():
    schedule = one_peer_exponential(8)
    assert schedule.degree == 1
    assert schedule.graph == gt.exponential(8).graph
    assert schedule.diameter == 2
    assert not schedule.is_symmetric
    assert in_turn([ring(4), star(4)]).is_symmetric


def test_mixing_constant_bounds_the_disagreement():
    rng = np.random.default_rng(0)
    for topology in (ring(9), star(9), gt.from_matrix(CYCLE), in_turn([ring(6), chain(6)]), one_peer_exponential(6)):
        x = rng.standard_normal((topology.n, 200))
        x -= x.mean(axis=0)
        mixed = x
        for mixing in topology.mixings:
            mixed = mixing @ mixed
        shrunk = (mixed**2).sum(axis=0) / (x**2).sum(axis=0)
        assert shrunk.max() <= 1 - topology.p + 1e-12
        assert topology.p == pytest.approx(1 - np.linalg.norm(_product(topology) - 1 / topology.n, 2) ** 2)


def _product(topology):
    product = np.eye(topology.n)
    for mixing in topology.mixings:
        product = mixing.dense() @ product
    return product


def test_lazy_weights_have_no_negative_eigenvalue():
    assert ring(8).smallest_eigenvalue < 0
    assert ring(8).lazy().smallest_eigenvalue == pytest.approx((1 + ring(8).smallest_eigenvalue) / 2)
    lazy = one_peer_exponential(8).lazy()
    assert (lazy.name, lazy.period) == ("lazy one-peer-exponential", 3)
    np.testing.assert_allclose(lazy.at(1).dense(), (np.eye(8) + one_peer_exponential(8).at(1).dense()) / 2)


def test_smallest_eigenvalue_needs_one_symmetric_matrix():
    assert ring(1).smallest_eigenvalue == 1
    with pytest.raises(GossamerError, match="'one-peer-exponential' is a schedule over time"):
        _ = one_peer_exponential(8).smallest_eigenvalue
    with pytest.raises(GossamerError, match="'matrix' is directed"):
        _ = gt.from_matrix(CYCLE).smallest_eigenvalue


def test_fingerprints():
    assert ring(8).fingerprint == ring(8).fingerprint == Topology("another name", ring(8).mixings).fingerprint
    prints = [t.fingerprint for t in (ring(8), ring(9), ring(8).lazy(), chain(8), in_turn([ring(8), ring(8)]))]
    assert len(set(prints)) == len(prints)
    # Frozen: real nodes on different versions compare these.
    assert ring(3).fingerprint == "df1d6e7fef83d471a5f4580a111f05fc31375909817b79ffb8f2ab55e86eb35d"


def test_connected_over_the_period_or_a_sentence():
    halves = [weigh(Graph(4, [(0, 1), (2, 3)])), weigh(Graph(4, [(1, 2)]))]
    assert Topology("halves", halves).graph.is_connected
    with pytest.raises(GossamerError, match="'half' is not connected: no path joins node 0 and node 2, so"):
        Topology("half", halves[:1])
    with pytest.raises(GossamerError, match="no path joins node a and node c in the 2 rounds of its period"):
        Topology("half", halves[:1] * 2, labels="abcd")


def test_bad_parts():
    with pytest.raises(GossamerError, match="at least one round"):
        Topology("empty", [])
    with pytest.raises(GossamerError, match="rounds of 3 and 4 nodes"):
        Topology("mixed", [ring(3).at(0), ring(4).at(0)])
    with pytest.raises(GossamerError, match="2 nodes need 2 different names"):
        Topology("pair", [Mixing.from_dense([[0.5, 0.5], [0.5, 0.5]])], labels=["x", "y", "z"])


def test_torch_and_networkx_are_not_imported():
    code = "import sys, gossamer.topology as gt; gt.ring(8).p; assert not {'torch', 'networkx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
