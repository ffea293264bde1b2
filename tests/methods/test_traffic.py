"""Methods that save traffic: what they are without compression or local steps, and what stays true with them."""

from typing import Any

import numpy as np
import pytest
import torch

from gossamer import methods, topology
from gossamer.engine import minimize
from gossamer.errors import GossamerError
from gossamer.methods import Method, compressed
from gossamer.network import SimulatedNetwork
from gossamer.problems import Quadratic
from gossamer.testing import Trial
from gossamer.testing.trajectories import NoisyQuadratics, distance, library_run
from gossamer.topology import Topology

COMPRESSORS = ["quantize:bits=4", "quantize:bits=2", "quantize:bits=1", "top-k:share=0.1", "random-k:share=0.2"]
COMPRESSED = [name for name in methods.BUILT_IN if methods.find(name).facts.compresses]
LAZY_RING = topology.ring(8).lazy()


def quick(cases: list[tuple[Any, ...]], few: list[tuple[Any, ...]]) -> list[Any]:
    """All cases; those that are not among the few take long."""
    return [case if case in few else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


EQUAL = [
    ("motef", {"compress": "identity", "gamma": 1.0}, "momentum-tracking", {}),
    ("motef", {"compress": "identity", "init": "zero"}, "momentum-tracking", {"init": "zero"}),
    ("motef", {"compress": "identity", "gamma": 1.0, "predict": True}, "momentum-tracking", {}),
    ("motef", {"beta": 0.0}, "beer", {}),
    ("beer", {"compress": "identity"}, "gradient-tracking", {}),
    ("choco-sgdm", {"compress": "identity", "gamma": 1.0}, "dsgdm", {}),
    ("choco-sgd", {"compress": "identity"}, "dsgd", {}),
    ("edm", {"beta": 0.0}, "d2", {}),
    ("led", {"every": 1}, "d2", {}),
    ("led", {"every": 1, "beta": 0.7}, "edm", {"beta": 0.7}),
]


@pytest.mark.parametrize(("name", "options", "other", "others"), EQUAL)
def test_it_is_the_method_without(name: str, options: dict[str, Any], other: str, others: dict[str, Any]) -> None:
    """The step size drops in mid-run and rests."""
    task, rates = NoisyQuadratics.drawn(rounds=60), [0.03] * 20 + [0.0] * 3 + [0.004] * 37
    ours = library_run(name, LAZY_RING, task, rates, **options)
    assert distance(ours, library_run(other, LAZY_RING, task, rates, **others)) < 1e-12


@pytest.mark.parametrize("compress", COMPRESSORS)
@pytest.mark.parametrize("name", COMPRESSED)
def test_sums_and_means_under_every_compressor(name: str, compress: str) -> None:
    """W h - h is what it says, its mean is 0, and so is that of the correction."""
    trial = Trial(topology.erdos_renyi(7, 0.5, seed=1), dim=40, rounds=30)
    weights = torch.from_numpy(trial.topology.at(0).dense())
    for _, x, state in trial.simulate(method := methods.get(name, compress=compress)):
        for h, gap in state.known():
            assert float((weights @ h - h - gap).abs().max()) < 1e-13 * float(h.abs().max().clamp(min=1))
            assert float(gap.mean(0).abs().max()) < 1e-13
        if method.facts.tracks:
            assert float((state.v - state.u).mean(0).abs().max()) < 1e-12
        assert x.isfinite().all()


def drift(rounds: int, every: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """How far running sums in float32 are from W H - H, relative to H; and the mean of x from where SGD takes it."""
    for module in (methods.motef, methods.choco):
        monkeypatch.setattr(module, "REBUILD", every)
    graph, method = topology.ring(8), methods.get("motef:compress=quantize:bits=2")
    net, weights = SimulatedNetwork(graph), torch.from_numpy(graph.at(0).dense())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 32, generator=generator).expand(8, 32).clone() + 10
    state, mean = method.initial(x, net), x[0].double()
    for r in range(rounds):
        grad = torch.randn(8, 32, generator=generator)
        method.step(state, x, grad, 0.01, net, r)
        mean -= 0.01 * state.u.double().mean(0)
    worst = max(
        float((weights @ h.double() - h.double() - gap.double()).abs().max() / h.abs().max())
        for h, gap in state.known()
    )
    return worst, float((x.double().mean(0) - mean).abs().max() / mean.abs().max())


def test_running_sums_are_rebuilt_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    once, _ = drift(301, 301, monkeypatch)
    never, off = drift(301, 10**9, monkeypatch)
    assert once < 1e-7 < never < 1e-5
    assert off < 1e-5  # 2e-5 for Momentum Tracking


@pytest.mark.slow
def test_running_sums_hold_for_50000_rounds_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    worst, off = drift(50_000 + compressed.REBUILD - 1, compressed.REBUILD, monkeypatch)
    assert worst < 1e-5
    assert off < 1e-3  # Momentum Tracking itself, all in float32: 6e-4 after 20,000 rounds


def optimum_of(problem: Quadratic, method: Method, graph: Topology, lr: float, rounds: int) -> float:
    """How far the farthest node is from the common optimum at last; less than 1e-8 is near enough."""
    net = SimulatedNetwork(graph, torch.float64)
    x = torch.ones(graph.n, problem.dim, dtype=torch.float64)
    state = method.initial(x, net)
    optimum, distance = problem.optimum(), np.inf
    for r in range(rounds):
        method.step(state, x, problem.gradient(x), lr, net, r)
        if r % 50 == 49 and (distance := float((x - optimum).abs().max())) < 1e-8:
            break
    return distance


def quadratics(n: int, dim: int = 40) -> Quadratic:
    generator = torch.Generator().manual_seed(n)
    scales = torch.rand(n, generator=generator, dtype=torch.float64) / 4 + 0.75
    return Quadratic(scales, 3 * torch.randn(n, dim, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "compress"),
    quick(
        [(name, compress) for name in ("motef", "beer") for compress in COMPRESSORS]
        + [("motef:predict=true", compress) for compress in COMPRESSORS if compress.startswith("quantize")],
        [("motef", "quantize:bits=4"), ("motef:predict=true", "quantize:bits=1"), ("beer", "quantize:bits=1")],
    ),
)
def test_compressed_tracking_is_exact(name: str, compress: str) -> None:
    """Full gradients of different quadratics: every node reaches the optimum although most bits are left out.

    The distance falls by a constant factor per round, which is the nearer to 1 the smaller gamma is.
    """
    lr = 0.02 if name == "beer" else 0.01
    assert optimum_of(quadratics(8), methods.get(name, compress=compress), topology.ring(8), lr, 6000) < 1e-8


@pytest.mark.parametrize("every", [1, 5, 20])
@pytest.mark.parametrize("name", ["k-gt", "led"])
def test_local_steps_are_exact(name: str, every: int) -> None:
    method = methods.get(name, every=every)
    assert optimum_of(quadratics(8), method, LAZY_RING, 0.2 / every, 600 * every) < 1e-8


def test_k_gt_is_exact_on_schedules() -> None:
    for graph in (topology.random_matchings(6, period=20), topology.lossy(topology.ring(6), 0.2), topology.base(6)):
        assert optimum_of(quadratics(6), methods.get("k-gt"), graph, 0.03, 2000) < 1e-8


@pytest.mark.parametrize("name", ["led", "k-gt", "edm", *COMPRESSED])
def test_nodes_leave_and_the_others_go_on(name: str) -> None:
    """Six nodes, of which four stay: what must sum to zero does again, and exact methods find the others' optimum."""
    method, six, four = methods.get(name), topology.ring(6).lazy(), topology.ring(4).lazy()
    before, after = quadratics(6), quadratics(4)
    x = torch.ones(6, 40, dtype=torch.float64)
    net = SimulatedNetwork(six, torch.float64)
    state = method.initial(x, net)
    for r in range(23):
        method.step(state, x, before.gradient(x), 0.01, net, r)
    x, net = x[:4].clone(), SimulatedNetwork(four, torch.float64)
    joined = method.initial(x, net)
    for kept in joined.keeps or ():
        getattr(joined, kept).copy_(getattr(state, kept)[:4])
    joined.rejoin(x, net, 23)
    weights = torch.from_numpy(four.at(0).dense())
    if name in COMPRESSED:
        assert torch.equal(joined.h, state.h[:4])
        assert all(torch.allclose(weights @ h - h, gap, atol=1e-14) for h, gap in joined.known())
    if method.facts.tracks:
        assert float(method.correction(joined).mean(0).abs().max()) < 1e-14
    lr, optimum = 0.1 if name in ("led", "k-gt", "beer") else 0.03, after.optimum()
    for r in range(23, 2023 if method.facts.every > 1 else 423):
        method.step(joined, x, after.gradient(x), lr, net, r)
    assert method.facts.exact == bool((x - optimum).abs().max() < 1e-5)


GRAPHS = {
    "ring": topology.ring(8),
    "chain": topology.chain(8),
    "star": topology.star(8),
    "hypercube": topology.hypercube(8),
    "pair": topology.ring(2),
}


LOSSY = [*COMPRESSORS, "top-k:share=0.01", "random-k:share=0.02"]
LONG = [(name, compress, 20_000) for name in ("motef", "choco-sgdm") for compress in LOSSY]
LONG += [("motef:predict=true", compress, 20_000) for compress in LOSSY if compress.startswith("quantize")]
SHORT = [("motef", "quantize:bits=1", 200), ("motef", "top-k:share=0.01", 200), ("choco-sgdm", "top-k:share=0.1", 200)]


@pytest.mark.parametrize(("name", "compress", "rounds"), quick([*SHORT, *LONG], SHORT))
def test_the_usual_gamma_does_not_diverge(name: str, compress: str, rounds: int) -> None:
    """Noisy heterogeneous quadratics with a large step size: x stays where it was early on, on every graph."""
    for where, graph in GRAPHS.items():
        task = NoisyQuadratics.drawn(n=graph.n, d=300, rounds=60)
        net, gradient = SimulatedNetwork(graph), task.stacked_gradient(torch.float32)
        method = methods.get(name, compress=compress)
        x = torch.from_numpy(task.start).float().expand(graph.n, -1).clone()
        state = method.initial(x, net)
        tenth, largest = rounds // 10, [0.0] * 10
        for r in range(rounds):
            method.step(state, x, gradient(r % 60, x), 0.05, net, r)
            largest[r // tenth] = max(largest[r // tenth], float(x.abs().max()))
        assert largest[-1] < 2 * max(largest[:5]) < 100, f"{name} with {compress} on {where}: {largest}"


@pytest.mark.parametrize("compress", ["quantize:bits=1", "quantize:bits=2"])
@pytest.mark.parametrize("graph", [*GRAPHS.values(), topology.complete(8), topology.grid(16)], ids=str)
def test_gossip_alone_dies_out_at_the_usual_gamma(graph: Topology, compress: str) -> None:
    """Compressed gossip towards the mean; for one bit, half as much again as the usual gamma is too much."""
    method, net = methods.get("motef", compress=compress), SimulatedNetwork(graph, torch.float64)
    usual = compressed.consensus_step(method, net, 500)
    assert 0.7 < usual <= 1

    def left(gamma: float, rounds: int = 300) -> float:
        """The distance from the mean after some rounds, from 1."""
        x = torch.randn(graph.n, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x -= x.mean(0)
        x, h, gap = x / x.norm(), torch.zeros_like(x), torch.zeros_like(x)
        for r in range(rounds):
            q = compressed.difference(x, h, gap, method.compressor, r)
            gap += net.mix(q, round=r, out=(torch.empty_like(x),)).wait()[0]
            compressed.pull_(x, gamma, gap)
        return float(x.norm())

    assert left(usual) < 1e-3
    if compress == "quantize:bits=1":
        assert left(1.5 * usual) > 1


@pytest.mark.parametrize("name", COMPRESSED)
def test_weights_must_be_symmetric(name: str) -> None:
    """On a directed ring the eigenvalues are complex, and old values make a difference grow as it goes round."""
    directed = topology.from_matrix((np.eye(5) + np.roll(np.eye(5), 1, axis=0)) / 2)
    with pytest.raises(GossamerError, match=r"needs symmetric weights, but .* some W_ij differs from W_ji"):
        methods.get(name).check(directed)


@pytest.mark.parametrize("compress", ["quantize:bits=1", "quantize:bits=2"])
def test_the_usual_gamma_needs_no_noise(compress: str) -> None:
    """What is left out of full gradients has few large numbers, of which a sign would keep next to nothing."""
    problem = Quadratic.synthetic(nodes=8, dim=300, zeta2=50.0)
    run = minimize(problem, f"motef:compress={compress}", "ring", lr=0.002, rounds=300)
    assert float((run.x - problem.optimum()).norm(dim=1).max() / problem.optimum().norm()) < 1e-3
