"""The non-convex problem: its mean, its stationary points, and Momentum Tracking finding one."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer import DSGD, GossamerError, GradientTracking, MomentumTracking, minimize, topology
from gossamer.problems import NonconvexCosine


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(nodes=st.integers(1, 6), dim=st.integers(1, 4), zeta2=st.floats(0, 100), seed=st.integers(0, 99))
@example(nodes=2, dim=1, zeta2=38.0, seed=56)
def test_gradients_are_those_of_the_losses_and_the_mean_is_a_plain_sum_of_cosines(nodes, dim, zeta2, seed):
    problem = NonconvexCosine(nodes=nodes, dim=dim, zeta2=zeta2, seed=seed)
    x = 5 * normal(dim, seed=seed)
    expected = torch.autograd.functional.jacobian(problem.losses, x)
    assert torch.allclose(problem.local_gradients(x), expected, rtol=1e-12, atol=1e-12)
    assert problem.loss(x) == pytest.approx(float((1 - x.cos()).sum()), abs=1e-10)
    assert torch.allclose(problem.mean_gradient(x), x.sin(), rtol=0, atol=1e-12)
    assert torch.allclose(problem.squared_gradient_norms(x[None]), problem.mean_gradient(x).square().sum(), atol=1e-12)


def test_stationary_exactly_at_multiples_of_pi():
    problem = NonconvexCosine(dim=3, zeta2=25.0)
    points = math.pi * torch.tensor([[0.0, 1.0, -2.0], [4.0, -3.0, 7.0]], dtype=torch.float64)
    assert float(problem.squared_gradient_norms(points).max()) < 1e-28
    assert float(problem.squared_gradient_norms(points + 0.01).min()) > 1e-4
    assert problem.loss(problem.optimum()) == 0.0
    assert problem.loss(2 * math.pi * torch.tensor([1.0, -1.0, 3.0], dtype=torch.float64)) == pytest.approx(
        0, abs=1e-12
    )
    assert problem.loss(points[0]) == pytest.approx(2.0)


def test_the_nearest_points():
    problem = NonconvexCosine(dim=2)
    x = torch.tensor([[3.0, -0.1], [6.0, 7.0]], dtype=torch.float64)
    pi = math.pi
    assert problem.nearest_stationary_point(x).tolist() == [[pi, 0.0], [2 * pi, 2 * pi]]
    assert problem.nearest_minimum(x).tolist() == [[0.0, 0.0], [2 * pi, 2 * pi]]


def test_smoothness_bounds_every_ratio_and_is_attained():
    problem = NonconvexCosine(nodes=5, dim=3)
    assert problem.smoothness == 1.5
    for seed in range(50):
        x, y = 3 * normal(3, seed=seed), 3 * normal(3, seed=seed + 1000)
        change = (problem.local_gradients(x) - problem.local_gradients(y)).norm(dim=1)
        assert float(change.max() / (x - y).norm()) <= problem.smoothness
    small = torch.full((3,), 1e-6, dtype=torch.float64)
    change = (problem.local_gradients(small) - problem.local_gradients(-small)).norm(dim=1).max() / (2 * small.norm())
    assert float(change) == pytest.approx(1.5, rel=1e-9)


def test_the_measured_heterogeneity_at_stationary_points_is_the_parameter():
    problem = NonconvexCosine(zeta2=7.0, seed=5)
    for x in (problem.optimum(), torch.full((2,), math.pi, dtype=torch.float64)):
        assert problem.heterogeneity(x) == pytest.approx(7.0, rel=1e-12)
    assert NonconvexCosine(nodes=1, zeta2=7.0).heterogeneity(problem.optimum()) == 0.0


def test_the_noise_has_the_declared_variance():
    problem = NonconvexCosine(sigma2=2.0)
    x, generator = torch.ones(8, 2, dtype=torch.float64), torch.Generator().manual_seed(0)
    noise = torch.stack([problem.stochastic_gradient(x, generator) - problem.gradient(x) for _ in range(2000)])
    assert float(noise.square().sum(2).mean()) == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize("method", [MomentumTracking(0.9), GradientTracking()], ids=["mt", "gt"])
@pytest.mark.parametrize("graph", [topology.ring(8), topology.one_peer_exponential(8)], ids=["ring", "schedule"])
def test_tracking_ends_in_a_minimum_on_every_node(method, graph):
    problem = NonconvexCosine(dim=3, zeta2=4.0)
    x0 = torch.tensor([1.0, 2.5, 8.0], dtype=torch.float64)
    lr = 0.01 if method.momentum else 0.05
    run = minimize(problem, method, graph, lr=lr, rounds=1500, x0=x0)
    found = problem.nearest_minimum(run.x)
    assert bool((found == found[0]).all())
    assert float((run.x - found).abs().max()) < 1e-9
    assert float(run.squared_gradients[-1]) < 1e-18


def test_dsgd_misses_every_stationary_point():
    problem = NonconvexCosine(dim=3, zeta2=4.0)
    run = minimize(problem, DSGD(), topology.ring(8), lr=0.05, rounds=1500)
    assert float((run.x - problem.nearest_stationary_point(run.x)).norm(dim=1).max()) > 1e-2


def test_float32_is_kept():
    problem = NonconvexCosine(dtype=torch.float32)
    assert problem.gradient(torch.ones(8, 2)).dtype == problem.optimum().dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 0}, "at least one node"),
        ({"dim": 0}, "one coordinate"),
        ({"zeta2": -1.0}, "zeta2 is a variance"),
        ({"sigma2": -1.0}, "sigma2 is a variance"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words):
    with pytest.raises(GossamerError, match=words):
        NonconvexCosine(**arguments)
