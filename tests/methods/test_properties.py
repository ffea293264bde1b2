"""What the methods promise, over graphs, sizes, coefficients and seeds drawn at random."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import methods, minimize, topology
from gossamer.methods import BUILT_IN, Method
from gossamer.network import SimulatedNetwork
from gossamer.problems import Quadratic
from gossamer.testing import Trial
from gossamer.testing.properties import CONTRACT, PROMISES
from gossamer.topology import Topology

# `make test-slow` draws many more: it gives --hypothesis-profile=thorough.
depth = settings().max_examples // 100
few = settings(max_examples=depth, deadline=None, derandomize=True)
some = settings(max_examples=3 * depth, deadline=None, derandomize=True)
many = settings(max_examples=5 * depth, deadline=None, derandomize=True)

seeds = st.integers(0, 10_000)
sizes = st.integers(1, 8)


def powers_of_two(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most).map(lambda k: 2**k)


trees = st.one_of(
    st.builds(topology.chain, sizes), st.builds(topology.star, sizes), st.builds(topology.balanced_tree, sizes)
)
static = st.one_of(
    trees,
    st.builds(topology.ring, sizes),
    st.builds(topology.ring, sizes, weights=st.sampled_from(["lazy", "uniform", "fastest"])),
    st.builds(topology.complete, sizes),
    st.builds(topology.exponential, sizes),
    st.builds(topology.hypercube, powers_of_two(3)),
    st.builds(topology.erdos_renyi, st.integers(2, 8), probability=st.sampled_from([0.4, 0.7]), seed=seeds),
    st.builds(topology.random_regular, st.sampled_from([6, 8]), degree=st.just(3), seed=seeds),
)
schedules = st.one_of(
    st.builds(topology.one_peer_exponential, st.integers(3, 8)),
    st.builds(topology.random_matchings, st.integers(3, 8), period=st.integers(10, 14), seed=seeds),
    st.integers(2, 6).map(lambda n: topology.in_turn([topology.ring(n), topology.star(n), topology.chain(n)])),
)


def graphs_of(method: str, over_time: bool = True) -> st.SearchStrategy[Topology]:
    """The graphs that a method accepts."""
    needs = methods.find(method).facts.needs
    if needs.tree:
        return trees
    if needs.smallest_eigenvalue is not None:
        return static.map(lambda graph: graph.lazy())
    return static if needs.static or not over_time else st.one_of(static, schedules)


def trials_of(method: str) -> st.SearchStrategy[Trial]:
    return st.builds(Trial, graphs_of(method), dim=st.integers(2, 6), seed=seeds, rounds=st.integers(4, 16))


def variants_of(method: str, largest_beta: float = 0.97) -> st.SearchStrategy[Method]:
    """The method with hyper-parameters drawn at random; Nesterov's variant promises other things and stays away."""
    known = methods.get(method).hyperparameters
    choices: dict[str, st.SearchStrategy[object]] = {
        "beta": st.floats(0, largest_beta),
        "init": st.sampled_from(["theorem", "zero"]),
        "fill": st.sampled_from(["arrived", "own"]),
        "b1": st.floats(0, 0.95),
    }
    return st.fixed_dictionaries({k: v for k, v in choices.items() if k in known}).map(
        lambda drawn: methods.get(method, **drawn)
    )


# With beta = 0, which is drawn as well, others are the same lines: BEER is MoTEF, CHOCO-SGD is CHOCO-SGDm.
NAMES = [name for name in BUILT_IN if name not in ("beer", "choco-sgd")]


def declaring(promise: str) -> list[str]:
    return [name for name in NAMES if getattr(methods.find(name).facts, promise)]


@pytest.mark.parametrize("name", NAMES)
@some
@given(data=st.data())
def test_the_contract_holds_on_any_accepted_graph(name, data):
    method, trial = data.draw(variants_of(name)), data.draw(trials_of(name))
    for title, check in CONTRACT.items():
        assert check(method, trial) is None, title


PAIRS = [(promise, name) for promise in PROMISES if not promise.startswith("exact") for name in declaring(promise)]


@pytest.mark.parametrize(("promise", "name"), PAIRS)
@many
@given(data=st.data())
def test_promises_hold_on_any_accepted_graph(promise, name, data):
    method, trial = data.draw(variants_of(name)), data.draw(trials_of(name))
    assert PROMISES[promise](method, trial) is None


@pytest.mark.parametrize("init", ["theorem", "zero"])
@pytest.mark.parametrize("name", ["momentum-tracking", "gradient-tracking"])
@some
@given(trial=st.builds(Trial, schedules, dim=st.integers(1, 4), seed=seeds, rounds=st.integers(20, 40)))
def test_tracking_keeps_its_means_over_time_with_both_starts(name, init, trial):
    """mean C = 0 and mean Y = mean U in every round, on every doubly stochastic schedule."""
    method = methods.get(name, init=init)
    for _, _, state in trial.simulate(method):
        size = float(state.signal.abs().max().clamp(min=1.0))
        assert float(method.correction(state).mean(0).abs().max()) < 1e-11 * size
        assert float((state.y.mean(0) - state.signal.mean(0)).abs().max()) < 1e-11 * size


@many
@given(data=st.data())
def test_the_two_starts_differ_in_the_first_direction_only(data):
    """Theorem 1's start makes the first y the exact average gradient, the zero start the node's own."""
    trial = data.draw(trials_of("momentum-tracking"))
    beta = data.draw(st.floats(0, 0.97))
    first = trial.gradient(trial.start(), 0)
    for init, expected in (("theorem", first.mean(0).expand_as(first)), ("zero", first)):
        method = methods.get("momentum-tracking", beta=beta, init=init)
        *_, state = next(trial.simulate(method))
        assert torch.allclose(state.y, expected, rtol=0, atol=1e-10)


SAME_WITHOUT_MOMENTUM = [
    ("momentum-tracking", "gradient-tracking", {"init": "theorem"}, {"init": "theorem"}, 0.0),
    ("momentum-tracking", "gradient-tracking", {"init": "zero"}, {"init": "zero"}, 0.0),
    ("dsgdm", "dsgd", {}, {}, 0.0),
    ("dsgdm", "dsgd", {"nesterov": True}, {}, 0.0),
    ("relaysum-m", "relaysum", {}, {}, 0.0),
    ("qg-dsgdm", "dsgd", {"mu": 0.5}, {}, 0.0),
    ("decentlam", "dsgd", {}, {}, 1e-12),
    ("abm", "gradient-tracking", {}, {"init": "zero"}, 1e-12),
]


@pytest.mark.parametrize(("with_beta", "without", "options", "others", "tolerance"), SAME_WITHOUT_MOMENTUM)
@many
@given(data=st.data())
def test_without_momentum_it_is_the_method_without(with_beta, without, options, others, tolerance, data):
    trial = data.draw(trials_of(with_beta))
    ours = trial.final(methods.get(with_beta, beta=0.0, **options))
    theirs = trial.final(methods.get(without, **others))
    assert float((ours - theirs).abs().max()) <= tolerance * float(theirs.abs().max().clamp(min=1.0))


def farthest_from_optimum(method: Method, where: Topology, seed: int, rounds: int = 3000) -> float:
    """How far from the common optimum a node ends, with full gradients of different strongly convex quadratics."""
    generator = torch.Generator().manual_seed(seed)
    scales = torch.rand(where.n, generator=generator, dtype=torch.float64) / 4 + 0.75
    targets = 3 * torch.randn(where.n, 2, generator=generator, dtype=torch.float64)
    problem = Quadratic(scales, targets)
    lr = 0.06 if method.facts.needs.tree else 0.02  # relayed steps take effect once they have reached all nodes
    run = minimize(problem, method, where, lr=lr, rounds=rounds)
    return float((run.x - problem.optimum()).abs().max())


@pytest.mark.parametrize(
    "name", [name for name in declaring("exact") if name != "motef"]
)  # takes long: test_traffic.py
@few
@given(data=st.data())
def test_exact_methods_reach_the_optimum_on_static_graphs(name, data):
    where = data.draw(graphs_of(name, over_time=False))
    method = data.draw(variants_of(name, largest_beta=0.8))
    assert farthest_from_optimum(method, where, data.draw(seeds)) < 1e-9


@pytest.mark.parametrize("name", declaring("exact_on_schedules"))
@few
@given(data=st.data())
def test_exact_methods_reach_the_optimum_on_schedules(name, data):
    method = data.draw(variants_of(name, largest_beta=0.8))
    assert farthest_from_optimum(method, data.draw(schedules), data.draw(seeds)) < 1e-9


STALLING = ["dsgd", "dsgdm", "qg-dsgdm", "decentlam"]


def end_and_stall(name: str, problem: Quadratic, where: Topology, lr: float, rounds: int) -> float:
    """Where a run without noise ends, against the closed form: the largest relative error of a node."""
    method = methods.get(name)
    effective = lr / (1 - method.momentum) if name == "dsgdm" else lr
    stall = problem.stall(torch.from_numpy(where.at(0).dense()), effective)
    end = minimize(problem, method, where, lr=lr, rounds=rounds).x
    return float(((end - stall).norm(dim=1) / stall.norm(dim=1)).max())


@pytest.mark.parametrize(("seed", "zeta2"), [(0, 25.0), (1, 50.0)])
@pytest.mark.parametrize("name", STALLING)
def test_the_others_stall_where_the_closed_form_says(name, seed, zeta2):
    problem = Quadratic.synthetic(zeta2=zeta2, seed=seed)
    assert end_and_stall(name, problem, topology.ring(25), lr=2e-3, rounds=3000) < 1e-9


@pytest.mark.parametrize(
    ("name", "rounds"), [("dsgd", 30_000), ("dsgdm", 5000), ("qg-dsgdm", 5000), ("decentlam", 5000)]
)
def test_the_stall_at_the_papers_own_step_size(name, rounds):
    assert end_and_stall(name, Quadratic.synthetic(zeta2=25.0), topology.ring(25), lr=1e-4, rounds=rounds) < 1e-9


@pytest.mark.parametrize("where", [topology.star(8), topology.hypercube(8)], ids=repr)
@pytest.mark.parametrize("name", STALLING)
def test_the_stall_on_other_graphs(name, where):
    problem = Quadratic.synthetic(nodes=8, dim=3, zeta2=25.0)
    assert end_and_stall(name, problem, where, lr=5e-3, rounds=4000) < 1e-9


@pytest.mark.parametrize("name", STALLING)
def test_the_bias_of_those_that_stall_grows_with_heterogeneity(name):
    """b scales with zeta and everything is linear, so the distance from the optimum does too."""
    distances = []
    for zeta2 in (25.0, 100.0):
        problem = Quadratic.synthetic(nodes=8, dim=3, zeta2=zeta2)
        end = minimize(problem, methods.get(name), topology.ring(8), lr=5e-3, rounds=4000).x
        distances.append(float((end.mean(0) - problem.optimum()).norm()))
    assert distances[0] > 1e-3
    assert distances[1] == pytest.approx(2 * distances[0], rel=1e-6)


def unchecked_run(name: str, where: Topology, lr: float, rounds: int) -> float:
    """The largest coordinate after a run that nobody asked whether the method can run there."""
    problem = Quadratic.synthetic(nodes=where.n, dim=3, zeta2=25.0)
    method, net = methods.get(name), SimulatedNetwork(where, dtype=torch.float64)
    x = problem.start().expand(where.n, 3).clone()
    state = method.initial(x, net)
    for r in range(rounds):
        method.step(state, x, problem.gradient(x), lr, net, r)
    return float(x.abs().max())


@pytest.mark.parametrize("name", ["abm", "decentlam", "d2"])
@pytest.mark.parametrize(
    "where", [topology.one_peer_exponential(8), topology.random_matchings(8, period=10, seed=1)], ids=repr
)
def test_the_need_for_a_static_graph_is_real(name, where):
    assert unchecked_run(name, where, lr=1e-3, rounds=2000) > 1e10
    assert unchecked_run("momentum-tracking", where, lr=1e-3, rounds=2000) < 10


@pytest.mark.parametrize("n", [8, 16])
def test_the_need_for_a_spectrum_above_a_third_is_real(n):
    where = topology.hypercube(n)
    assert where.smallest_eigenvalue < -0.4
    assert unchecked_run("d2", where, lr=1e-3, rounds=1000) > 1e10
    assert unchecked_run("d2", where.lazy(), lr=1e-3, rounds=2000) < 10


def test_d2_accumulates_rounding_in_float32_and_gradient_tracking_does_not():
    def error(name: str, dtype: torch.dtype) -> float:
        problem = Quadratic.synthetic(zeta2=25.0, dtype=dtype)
        end = minimize(problem, methods.get(name), topology.ring(25), lr=1e-3, rounds=5000).x
        return float((end.double() - Quadratic.synthetic(zeta2=25.0).optimum()).abs().max())

    assert error("d2", torch.float64) < 1e-10
    assert error("gradient-tracking", torch.float32) < 2e-5
    assert 1e-4 < error("d2", torch.float32) < 1e-2
