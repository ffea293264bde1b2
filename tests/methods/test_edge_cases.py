"""The reference implementation again, where code tends to break: one node, two nodes, odd numbers, very many."""

from typing import Any

import numpy as np
import pytest
import torch

from gossamer import methods, topology
from gossamer._common.checkpoint_file import first_not_finite
from gossamer.network import SimulatedNetwork
from gossamer.testing.trajectories import NoisyQuadratics, distance, library_run, reference_run

ROUNDS = 12
RATES = [0.03] * 4 + [0.0] + [0.05] * 4 + [0.005] * 3


def gap(method: str, where: topology.Topology, task: NoisyQuadratics, **hyperparameters: Any) -> float:
    expected = reference_run(method, where, task, RATES[: task.rounds], **hyperparameters)
    actual = library_run(method, where, task, RATES[: task.rounds], **hyperparameters)
    return distance(actual, expected)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("method", methods.BUILT_IN)
def test_few_nodes_in_a_chain(method: str, n: int) -> None:
    assert gap(method, topology.chain(n), NoisyQuadratics.drawn(n=n, rounds=ROUNDS)) < 1e-10


@pytest.mark.parametrize("d", [1, 2, 17])
@pytest.mark.parametrize("method", methods.BUILT_IN)
def test_few_and_odd_dimensions(method: str, d: int) -> None:
    assert gap(method, topology.chain(5), NoisyQuadratics.drawn(n=5, d=d, rounds=ROUNDS)) < 1e-10


@pytest.mark.parametrize("n", [3, 5, 6, 7])
@pytest.mark.parametrize("method", ["dsgdm", "qg-dsgdm", "momentum-tracking", "gtadam"])
def test_directed_schedule_of_any_number_of_nodes(method: str, n: int) -> None:
    assert gap(method, topology.one_peer_exponential(n), NoisyQuadratics.drawn(n=n, rounds=ROUNDS)) < 1e-10


@pytest.mark.parametrize("method", ["dsgdm", "gtadam", "momentum-tracking"])
@pytest.mark.parametrize("start", range(3))
def test_each_round_uses_the_weights_of_its_own_turn(method: str, start: int) -> None:
    """Three graphs in every rotation: being one round off would pass none of them."""
    graphs = [topology.ring(6), topology.star(6), topology.chain(6).lazy()]
    task = NoisyQuadratics.drawn(n=6, rounds=ROUNDS)
    turned = topology.in_turn(graphs[start:] + graphs[:start])
    assert gap(method, turned, task) < 1e-10
    late = topology.in_turn(graphs[start + 1 :] + graphs[: start + 1])
    assert distance(library_run(method, late, task, RATES), reference_run(method, turned, task, RATES)) > 1e-4


@pytest.mark.parametrize("name", ["star", "one-peer-exponential"])
@pytest.mark.parametrize("method", ["dsgdm", "momentum-tracking"])
def test_many_nodes(method: str, name: str) -> None:
    where = topology.star(130) if name == "star" else topology.one_peer_exponential(130)
    assert gap(method, where, NoisyQuadratics.drawn(n=130, d=3, rounds=6)) < 1e-10


def test_many_nodes_with_long_vectors() -> None:
    assert gap("momentum-tracking", topology.ring(101), NoisyQuadratics.drawn(n=101, d=8200, rounds=2)) < 1e-10


@pytest.mark.parametrize("method", methods.BUILT_IN)
def test_a_step_size_of_zero_throughout_leaves_equal_nodes_where_they_are(method: str) -> None:
    task = NoisyQuadratics.drawn(n=5, rounds=ROUNDS)
    x = library_run(method, topology.chain(5), task, [0.0] * ROUNDS)
    assert np.abs(x - task.start).max() < 1e-12


def test_relayed_half_steps_are_one_round_younger_than_they_are_far_away():
    graph, relaysum = topology.chain(5), methods.RelaySum()
    net = SimulatedNetwork(graph, torch.float64)
    draws = torch.randn(ROUNDS, 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.zeros(5, 1, dtype=torch.float64)
    state, halves = relaysum.initial(x, net), []
    for r, grad in enumerate(draws):
        halves.append(x - 0.1 * grad)
        relaysum.step(state, x, grad.clone(), 0.1, net, r)
    for i in range(5):
        arrived = [halves[-1 - max(0, abs(i - j) - 1)][j] for j in range(5)]
        assert torch.allclose(x[i], torch.stack(arrived).mean(0), rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", methods.BUILT_IN)
def test_a_state_begins_with_numbers(method: str) -> None:
    """A checkpoint of round 0 holds the state, and what is not finite is not saved."""
    where, chosen = topology.chain(3), methods.get(method)
    torch.use_deterministic_algorithms(True)  # memory that nobody has written to is full of nan
    try:
        assert torch.empty(1).isnan()
        state = chosen.initial(torch.ones(3, 2), SimulatedNetwork(where, torch.float32))
        assert first_not_finite(state.tensors()) is None
    finally:
        torch.use_deterministic_algorithms(False)


def test_all_reduce_brings_nodes_together_that_have_made_a_round_alone() -> None:
    net = SimulatedNetwork(topology.complete(3), torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64)
    state = methods.AllReduceSGDm().initial(x, net)
    state.u.copy_(torch.randn(3, 4))
    mean_x, mean_u = x.mean(0), state.u.mean(0)
    state.rejoin(x, net, 5)
    assert torch.allclose(x, mean_x.expand(3, 4), atol=1e-15)
    assert torch.allclose(state.u, mean_u.expand(3, 4), atol=1e-15)
    assert (x == x[0]).all()
