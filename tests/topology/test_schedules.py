import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import GossamerError
from gossamer.topology import (
    Graph,
    base,
    chain,
    epidemic,
    from_edges,
    get,
    in_turn,
    lossy,
    one_peer_exponential,
    random_matchings,
    ring,
    simple_base,
    star,
)


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 64])
def test_one_peer_exponential_averages_exactly(n):
    topology = one_peer_exponential(n)
    assert topology.period == max(1, n.bit_length() - 1)
    x = np.random.default_rng(0).standard_normal((n, 3))
    mixed = x
    for round in range(topology.period):
        mixed = topology.at(round) @ mixed
    np.testing.assert_allclose(mixed, np.broadcast_to(x.mean(axis=0), x.shape), atol=1e-15)
    assert topology.p == 1
    assert topology.spectral_gap == 1


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 40), st.integers(0, 20))
def test_one_peer_exponential_sends_to_the_right_peer(n, round):
    topology = one_peer_exponential(n)
    period = int(np.ceil(np.log2(n)))
    assert topology.period == period
    mixing = topology.at(round)
    for i in range(n):
        peer = (i + 2 ** (round % period)) % n
        assert mixing.receivers(i).tolist() == [peer]
        assert mixing.dense()[peer, i] == mixing.dense()[i, i] == 0.5
    assert 0 < topology.p <= 1


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(0, 20))
def test_random_matchings(n, seed):
    topology = random_matchings(n, period=30, seed=seed)
    assert topology.period == 30
    assert topology.is_symmetric
    assert 0 < topology.p <= 1
    for mixing in topology.mixings:
        partners = [mixing.senders(i).tolist() for i in range(n)]
        assert sum(map(len, partners)) == n - n % 2
        assert mixing.degree == min(1, n - 1)
        assert set(mixing.values.tolist()) <= {0.5, 1.0}


def test_every_pair_gets_matched_alike():
    topology = random_matchings(5, period=3000, seed=1)
    mean = np.mean([mixing.dense() for mixing in topology.mixings], axis=0)
    np.testing.assert_allclose(mean[~np.eye(5, dtype=bool)], 0.5 / 5, atol=0.02)


def test_seeds_decide_matchings():
    assert random_matchings(8, seed=1).fingerprint == random_matchings(8, seed=1).fingerprint
    assert random_matchings(8, seed=1).fingerprint != random_matchings(8, seed=2).fingerprint


def test_in_turn_takes_topologies_graphs_and_matrices():
    topology = in_turn([ring(4), one_peer_exponential(4), Graph(4, [(0, 2)]), star(4).at(0)], weights="lazy")
    assert topology.period == 5
    assert topology.at(1) is topology.mixings[1]
    assert topology.at(6) is topology.mixings[1]
    assert topology.at(3).dense()[0].tolist() == [0.75, 0, 0.25, 0]


def test_in_turn_keeps_labels():
    abc = from_edges([("a", "b"), ("b", "c")])
    assert in_turn([abc, chain(3)]).labels == ("a", "b", "c")
    with pytest.raises(GossamerError, match="name their nodes alike"):
        in_turn([abc, from_edges([("b", "a"), ("b", "c")])])


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: random_matchings(8, period=0), "period of a schedule must be a whole number of at least 1"),
        (lambda: random_matchings(8, period=1), "do not connect all of them within 1 rounds; use a longer period"),
        (lambda: random_matchings(8, seed="x"), "The seed must be a whole number"),
        (lambda: in_turn([]), "'in-turn' needs the weights of at least one round"),
        (lambda: in_turn([ring(3), ring(4)]), "rounds of 3 and 4 nodes"),
        (lambda: in_turn(["ring"]), "takes topologies, graphs and mixing matrices, not str"),
        (lambda: in_turn([Graph(4, [(0, 1)]), Graph(4, [(2, 3)])]), "no path joins node 0 and node 2 in the 2 rounds"),
    ],
)
def test_bad_input(build, sentence):
    with pytest.raises(GossamerError, match=sentence):
        build()


@pytest.mark.parametrize("make", [base, simple_base])
@pytest.mark.parametrize("largest", [0, 5])
@pytest.mark.parametrize("most", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_base_graphs_average_exactly_for_any_number_of_nodes(make, largest, most):
    for n in range(1, most + 1):
        degree = 1 + n % (largest + 1)
        topology = make(n, degree)
        assert topology.degree <= degree
        assert topology.period <= max(1, 2 * np.log(n) / np.log(degree + 1) + 2)  # the paper's bound
        x = np.random.default_rng(n).standard_normal(n)
        mixed = x
        for mixing in topology.mixings:
            mixed = mixing @ mixed
        np.testing.assert_allclose(mixed, x.mean(), atol=1e-12)


def test_base_graphs_are_as_short_as_published():
    """Figures 3 and 4 of the paper: 5 nodes take 5 rounds; 6 take 5, or 4 as 2 x 3."""
    assert [f(n).period for f, n in ((simple_base, 5), (base, 5), (simple_base, 6), (base, 6))] == [5, 5, 5, 4]
    assert (base(8).period, base(9, degree=2).period, get("base:degree=4", 25).period) == (3, 2, 2)  # hypercubes
    assert base(25).is_symmetric
    assert base(25).p == pytest.approx(1)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 20))
def test_epidemic(n, peers, seed):
    if peers >= n > 1:
        with pytest.raises(GossamerError, match=f"at most {n - 1} others"):
            epidemic(n, peers)
        return
    topology = epidemic(n, peers, period=20, seed=seed)
    for mixing in topology.mixings:
        assert all(len(mixing.senders(i)) == len(mixing.receivers(i)) == min(peers, n - 1) for i in range(n))
        np.testing.assert_allclose(mixing.values, 1 / min(peers + 1, n))


def test_every_pair_meets_alike_in_an_epidemic():
    mean = np.mean([mixing.dense() for mixing in epidemic(5, peers=2, period=3000, seed=1).mixings], axis=0)
    np.testing.assert_allclose(mean[~np.eye(5, dtype=bool)], 2 / 3 / 4, atol=0.02)


def test_lossy_links_keep_their_weight_at_both_ends():
    graph = ring(8)
    topology = lossy(graph, drop=0.3, period=500, seed=2)
    whole, lost = graph.at(0).dense(), 0
    for mixing in topology.mixings:
        there = mixing.dense()
        assert mixing.is_symmetric
        gone = (there == 0) & (whole > 0)
        assert np.array_equal(there[~np.eye(8, dtype=bool) & ~gone], whole[~np.eye(8, dtype=bool) & ~gone])
        lost += gone.sum()
    assert lost / (500 * 16) == pytest.approx(0.3, abs=0.02)
    assert lossy(graph, drop=0.0, period=1).fingerprint == graph.fingerprint
    assert lossy(in_turn([ring(4), star(4)]), period=3).period == 4
    assert get("lossy:graph=random-regular:degree=4+seed=3,drop=0.2", 12).name == "lossy random-regular"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lossy(one_peer_exponential(4)), "one way only"),
        (lambda: lossy(ring(4), drop=1.5), "must be a number between 0 and 1"),
        (lambda: lossy(ring(4), drop=1.0), "not connected"),
        (lambda: base(5, degree=0), "degree of a base graph must be a whole number of at least 1"),
        (lambda: epidemic(5, peers=0), "peers of an epidemic round"),
        (lambda: get("lossy:graph=rings", 4), "no topology 'rings'"),
    ],
)
def test_schedules_that_cannot_be(make, words):
    with pytest.raises(GossamerError, match=words):
        make()
