"""The simulated network against explicit loops over nodes and edges."""

import tracemalloc

import numpy as np
import pytest
import torch

from gossamer import GossamerError, topology
from gossamer.network import Network, Pending, Ready, SimulatedNetwork, simulated
from gossamer.network.simulated import FEWEST_ROWS
from gossamer.topology import Mixing, Topology

MANY_NODES = 101
BLOCK = 2400  # numbers that are summed at a time
FLOATS = {torch.float64: 1e-13, torch.float32: 1e-5}
FEW = {
    "one": lambda: topology.complete(1),
    "pair": lambda: topology.chain(2),
    "ring": lambda: topology.ring(9),
    "irregular": lambda: topology.erdos_renyi(12, probability=0.3, seed=2),
    "many, all connected": lambda: topology.complete(MANY_NODES),
}
MANY = {
    "ring": lambda: topology.ring(MANY_NODES),
    "star": lambda: topology.star(MANY_NODES + 10),
    "irregular": lambda: topology.erdos_renyi(MANY_NODES + 50, probability=0.032, seed=3),
    "negative weights": lambda: topology.star(MANY_NODES, weights="fastest"),
}


def vectors(n: int, d: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mixed_by_hand(where: Topology, x: torch.Tensor, round: int = 0) -> torch.Tensor:
    """sum_j W_ij x_j in float64, entry by entry."""
    mixing = where.at(round)
    result = torch.zeros(x.shape, dtype=torch.float64)
    for i in range(where.n):
        for k in range(int(mixing.indptr[i]), int(mixing.indptr[i + 1])):
            result[i] += float(mixing.values[k]) * x[int(mixing.indices[k])].double()
    return result


def edges_by_hand(where: Topology) -> list[tuple[int, int]]:
    """All directed edges (i, j), by i, then j."""
    pairs = where.graph.edges.tolist()
    return sorted([(i, j) for i, j in pairs] + [(j, i) for i, j in pairs])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FEW)
def test_where_most_are_connected_the_product_is_dense(name, dtype, monkeypatch):
    monkeypatch.setattr(SimulatedNetwork, "_sparse", lambda self, mixing: pytest.fail("a sparse product was made"))
    where = FEW[name]()
    x = vectors(where.n, 3, dtype)
    (mixed,) = SimulatedNetwork(where, dtype=dtype).mix(x, round=0).wait()
    assert mixed.dtype == dtype
    assert float((mixed.double() - mixed_by_hand(where, x)).abs().max()) < FLOATS[dtype]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("d", [30, 37, BLOCK // 16, BLOCK // FEWEST_ROWS + 1])
@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("has_mkl", [True, False])
def test_many_nodes_are_mixed_by_sums_over_their_neighbours(name, d, dtype, has_mkl, monkeypatch):
    monkeypatch.setattr(Mixing, "dense", lambda self: pytest.fail("an N x N matrix was made"))
    monkeypatch.setattr(simulated, "BLOCK", BLOCK)
    if not has_mkl:
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    where = MANY[name]()
    x = vectors(where.n, d, dtype)
    (mixed,) = SimulatedNetwork(where, dtype=dtype).mix(x, round=0).wait()
    assert mixed.dtype == dtype
    assert float((mixed.double() - mixed_by_hand(where, x)).abs().max()) < FLOATS[dtype]


@pytest.mark.parametrize("order", [(1, 3000), (3000, 1)])
def test_short_vectors_do_not_decide_how_long_ones_are_mixed(order, monkeypatch):
    made = []
    for name in ("_dense", "_sparse"):
        real = getattr(SimulatedNetwork, name)
        noted = lambda *given, real=real, name=name: made.append(name) or real(*given)  # noqa: E731
        monkeypatch.setattr(SimulatedNetwork, name, noted)
    net = SimulatedNetwork(topology.ring(MANY_NODES), dtype=torch.float64)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    stacks = [vectors(MANY_NODES, d) for d in order]
    for round in range(2):
        for mixed, x in zip(net.mix(*stacks, round=round).wait(), stacks, strict=True):
            assert float((mixed - mixed_by_hand(net.topology, x)).abs().max()) < 1e-13
    assert made == [{1: "_dense", 3000: "_sparse"}[d] for d in order]


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_over_neighbours_are_the_same_bits_on_any_number_of_threads_and_whatever_out_holds(dtype):
    where = topology.random_regular(200, 4)
    net = SimulatedNetwork(where, dtype=dtype)
    x = vectors(200, 3000, dtype)
    found = []
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found += net.mix(x, round=0, out=(torch.full_like(x, torch.nan),)).wait()
    finally:
        torch.set_num_threads(threads)
    assert found[0].isfinite().all()
    assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [6, 24, MANY_NODES])
def test_half_precision_is_mixed_too(n, dtype):
    where = topology.ring(n)
    x = vectors(n, 3, dtype)
    (mixed,) = SimulatedNetwork(where, dtype=dtype).mix(x, round=0).wait()
    assert mixed.dtype == dtype
    torch.testing.assert_close(mixed.double(), mixed_by_hand(where, x), rtol=0, atol=0.05)


def test_a_node_that_is_not_finite_spoils_its_neighbours_only():
    x = vectors(MANY_NODES, 30)
    x[50] = torch.inf
    (mixed,) = SimulatedNetwork(topology.ring(MANY_NODES), dtype=torch.float64).mix(x, round=0).wait()
    assert (~mixed.isfinite().all(1)).nonzero().flatten().tolist() == [49, 50, 51]


@pytest.mark.parametrize(("n", "d"), [(6, 4), (MANY_NODES, 4), (MANY_NODES, 9000)])
def test_results_are_written_into_out_and_the_vectors_are_left_alone(n, d):
    where = topology.ring(n)
    net = SimulatedNetwork(where, dtype=torch.float64)
    x, y = vectors(n, d), vectors(n, d, seed=1)
    before = x.clone(), y.clone()
    out = torch.full_like(x, 7.0), torch.full_like(y, 7.0)
    arrived = net.mix(x, y, round=0, out=out).wait()
    assert arrived[0] is out[0]
    assert arrived[1] is out[1]
    for vector, kept, result in zip((x, y), before, out, strict=True):
        assert torch.equal(vector, kept)
        assert float((result - mixed_by_hand(where, vector)).abs().max()) < 1e-13


@pytest.mark.parametrize(("n", "d"), [(1, 2), (6, 4), (MANY_NODES, 4)])
def test_without_out_the_results_are_new_tensors(n, d):
    where = topology.complete(1) if n == 1 else topology.ring(n)
    net = SimulatedNetwork(where, dtype=torch.float64)
    x = vectors(n, d)
    first, second = net.mix(x, x, round=0).wait()
    expected = first.clone()
    assert len({x.data_ptr(), first.data_ptr(), second.data_ptr()}) == 3
    x.zero_()
    second.fill_(5.0)
    assert torch.equal(first, expected)


def test_out_needs_one_tensor_for_each_vector():
    net = SimulatedNetwork(topology.ring(4), dtype=torch.float64)
    with pytest.raises(ValueError, match="zip"):
        net.mix(vectors(4, 2), vectors(4, 2), round=0, out=(torch.empty(4, 2, dtype=torch.float64),))


@pytest.mark.parametrize("n", [4, MANY_NODES + 4])
@pytest.mark.parametrize("shape", [(3,), (1, 3), (5, 3), (4, 3, 1), ()])
def test_what_is_no_stack_of_all_nodes_is_named_in_the_first_round(n, shape):
    net = SimulatedNetwork(topology.ring(n), dtype=torch.float64)
    for _ in range(2):
        with pytest.raises(GossamerError) as caught:
            net.mix(vectors(n, 2), torch.zeros(shape, dtype=torch.float64), round=0)
        words = f"shape {shape}, but a simulation mixes stacks [N, d] with one row for each of the N = {n} nodes"
        assert words in str(caught.value)
    assert net.mix(vectors(n, 2), round=0).wait()[0].shape == (n, 2)


@pytest.mark.parametrize("n", [8, MANY_NODES + 4])
@pytest.mark.parametrize("make", [topology.one_peer_exponential, topology.random_matchings], ids=lambda f: f.__name__)
def test_a_schedule_uses_the_weights_of_the_round_within_its_period(make, n):
    where = make(n)
    assert where.period > 2
    net = SimulatedNetwork(where, dtype=torch.float64)
    x = vectors(n, 2)
    for r in (0, 1, 2, where.period - 1, where.period, 3 * where.period + 1):
        (mixed,) = net.mix(x, round=r).wait()
        assert float((mixed - mixed_by_hand(where, x, r % where.period)).abs().max()) < 1e-13
    assert not torch.equal(net.mix(x, round=0).wait()[0], net.mix(x, round=1).wait()[0])


def test_a_directed_round_moves_vectors_to_the_receiver():
    """W[i, j] weighs what i receives from j, not what it sends."""
    where = topology.one_peer_exponential(5)
    assert not where.is_symmetric
    x = torch.eye(5, dtype=torch.float64)
    (mixed,) = SimulatedNetwork(where, dtype=torch.float64).mix(x, round=0).wait()
    assert torch.equal(mixed, torch.from_numpy(where.at(0).dense()))


def test_mixing_keeps_the_average():
    where = topology.erdos_renyi(120, probability=0.1, seed=0)
    x = vectors(120, 5)
    (mixed,) = SimulatedNetwork(where, dtype=torch.float64).mix(x, round=0).wait()
    assert torch.allclose(mixed.mean(0), x.mean(0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_average_shows_the_mean_in_every_row(n, dtype):
    """To the bit what real nodes compute, which add in ascending node id: a quantizer magnifies a last bit."""
    x = vectors(n, 300, dtype)
    kept = x.clone()
    mean = SimulatedNetwork(topology.complete(n), dtype=dtype).average(x, round=0)
    assert mean.shape == x.shape
    for i in range(n):
        assert torch.equal(mean[i], sum(x) / n)
    assert torch.equal(x, kept)


@pytest.mark.parametrize(
    "where",
    [topology.chain(2), topology.chain(5), topology.star(6), topology.balanced_tree(7), topology.ring(5)],
    ids=repr,
)
def test_edge_rows_against_explicit_loops(where):
    net = SimulatedNetwork(where, dtype=torch.float64)
    edges = edges_by_hand(where)
    x = vectors(where.n, 3)
    spread = net.spread(x)
    assert spread.shape == (len(edges), 3)
    for row, (i, _) in zip(spread, edges, strict=True):
        assert torch.equal(row, x[i])

    rows, others = vectors(len(edges), 3, seed=1), vectors(len(edges), 1, seed=2)
    collected = net.collect(rows)
    for i in range(where.n):
        own = [rows[k] for k, (owner, _) in enumerate(edges) if owner == i]
        assert torch.allclose(collected[i], sum(own), rtol=0, atol=1e-14)

    swapped = net.exchange(rows, others, round=0).wait()
    for k, (i, j) in enumerate(edges):
        back = edges.index((j, i))
        assert torch.equal(swapped[0][k], rows[back])
        assert torch.equal(swapped[1][k], others[back])
    assert torch.equal(net.exchange(*swapped, round=1).wait()[0], rows)


def test_one_node_has_no_edges():
    net = SimulatedNetwork(topology.complete(1), dtype=torch.float64)
    x = vectors(1, 4)
    assert torch.equal(net.mix(x, round=3).wait()[0], x)
    assert torch.equal(net.average(x, round=0), x)
    assert net.spread(x).shape == (0, 4)
    assert torch.equal(net.collect(net.spread(x)), torch.zeros(1, 4, dtype=torch.float64))
    assert net.exchange(net.spread(x), round=0).wait()[0].shape == (0, 4)


def test_a_ring_of_ten_thousand_nodes_needs_no_square_matrix(monkeypatch):
    monkeypatch.setattr(Mixing, "dense", lambda self: pytest.fail("an N x N matrix was made"))
    n = 10_000
    x = vectors(n, 2, torch.float32)
    tracemalloc.start()
    try:
        (mixed,) = SimulatedNetwork(topology.ring(n)).mix(x, round=0).wait()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert torch.allclose(mixed, (x + x.roll(1, 0) + x.roll(-1, 0)) / 3, rtol=0, atol=1e-6)
    assert peak < n * n / 8  # numpy reports its arrays here: one bit for each pair of nodes would be more


def test_the_contract_is_fulfilled():
    net: Network = SimulatedNetwork(topology.ring(3))
    message = net.mix(torch.ones(3, 1), round=0)
    assert isinstance(message, Pending)
    assert isinstance(message, Ready)
    assert message.wait() is message.wait()
    assert net.n == 3
    assert np.allclose(message.wait()[0], 1.0)
