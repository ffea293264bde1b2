"""The paper's quadratics: gradients, optimum, stall, noise."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import GossamerError, topology
from gossamer.problems import Quadratic


@settings(max_examples=25, deadline=None)
@given(nodes=st.integers(1, 6), dim=st.integers(1, 4), seed=st.integers(0, 1000))
def test_gradients_are_those_of_the_losses(nodes, dim, seed):
    problem = Quadratic.synthetic(nodes=nodes, dim=dim, zeta2=25.0, seed=seed)
    x = torch.randn(dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(problem.losses, x)
    assert torch.allclose(problem.local_gradients(x), expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(problem.mean_gradient(x), expected.mean(0), rtol=1e-12, atol=1e-12)


def test_each_node_has_its_gradient_at_its_own_point():
    problem = Quadratic.synthetic(nodes=3, dim=2, zeta2=1.0)
    points = torch.arange(6, dtype=torch.float64).reshape(3, 2)
    for i in range(3):
        assert torch.equal(problem.gradient(points)[i], problem.local_gradients(points[i])[i])


def test_gradient_writes_into_out():
    problem = Quadratic.synthetic(nodes=3, dim=2, zeta2=1.0)
    x, out = torch.ones(3, 2, dtype=torch.float64), torch.empty(3, 2, dtype=torch.float64)
    assert problem.gradient(x, out=out) is out
    assert torch.equal(out, problem.gradient(x))


def test_the_draw_is_the_papers():
    problem = Quadratic.synthetic(nodes=25, dim=2000, zeta2=50.0, seed=3)
    i = torch.arange(1, 26, dtype=torch.float64)
    assert torch.allclose(problem.scales, i / 5)
    assert torch.allclose(problem.targets.square().mean(1) * i.square(), torch.full((25,), 50.0).double(), rtol=0.2)
    assert problem.smoothness == pytest.approx(25.0)
    assert problem.mean_curvature == pytest.approx(float((i / 5).square().mean()))
    assert torch.equal(problem.start(), torch.ones(2000, dtype=torch.float64))


def test_the_gradient_vanishes_at_the_optimum_and_the_loss_is_smallest_there():
    problem = Quadratic.synthetic(nodes=8, dim=5, zeta2=25.0)
    best = problem.optimum()
    assert float(problem.mean_gradient(best).norm()) < 1e-13
    step = torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert problem.loss(best + 0.1 * step) > problem.loss(best)


def test_squared_gradient_norms_agree_with_single_points():
    problem = Quadratic.synthetic(nodes=5, dim=3, zeta2=25.0)
    points = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    single = torch.stack([problem.mean_gradient(x).square().sum() for x in points])
    assert torch.allclose(problem.squared_gradient_norms(points), single, rtol=1e-12)


def test_heterogeneity_is_that_of_assumption_5():
    problem = Quadratic(torch.tensor([1.0, 1.0]).double(), torch.tensor([[1.0], [-3.0]]).double())
    # gradients x - 1 and x + 3: their mean is x + 1, each 2 away from it
    assert problem.heterogeneity(torch.tensor([7.0]).double()) == pytest.approx(4.0)


def test_heterogeneity_at_the_optimum_is_about_twice_the_parameter_of_the_paper():
    measured = []
    for seed in range(20):
        problem = Quadratic.synthetic(zeta2=25.0, seed=seed)
        measured.append(problem.heterogeneity(problem.optimum()))
    assert sum(measured) / 20 == pytest.approx(2 * 25.0, rel=0.1)


@pytest.mark.parametrize("weights", [topology.ring(8), topology.hypercube(8), topology.star(8)], ids=lambda t: t.name)
def test_the_stall_is_the_fixed_point_of_a_round_of_dsgd(weights):
    problem = Quadratic.synthetic(nodes=8, dim=3, zeta2=25.0)
    w = torch.from_numpy(weights.at(0).dense())
    for lr in (0.1, 1e-3):
        x = problem.stall(w, lr)
        assert torch.allclose(w @ (x - lr * problem.gradient(x)), x, rtol=0, atol=1e-12)
    assert float((x.mean(0) - problem.optimum()).norm()) > 1e-4


def test_the_noise_has_the_declared_variance():
    problem = Quadratic.synthetic(nodes=4, dim=10, sigma2=3.0)
    generator = torch.Generator().manual_seed(0)
    x = problem.start().expand(4, 10)
    noise = torch.stack([problem.stochastic_gradient(x, generator) - problem.gradient(x) for _ in range(2000)])
    assert float(noise.square().sum(2).mean()) == pytest.approx(3.0, rel=0.02)
    assert float(noise.mean(0).abs().max()) < 0.06
    assert problem.noisy
    assert problem.noise(problem.start()) == 3.0


def test_without_noise_the_stochastic_gradient_is_the_full_one():
    problem = Quadratic.synthetic(nodes=4, dim=2)
    x = torch.ones(4, 2, dtype=torch.float64)
    assert not problem.noisy
    assert torch.equal(problem.stochastic_gradient(x, torch.Generator()), problem.gradient(x))


def test_float32_is_kept():
    problem = Quadratic.synthetic(nodes=4, dim=2, zeta2=1.0, dtype=torch.float32)
    assert problem.start().dtype == problem.optimum().dtype == torch.float32
    assert problem.gradient(torch.ones(4, 2)).dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Quadratic(torch.ones(2), torch.ones(3, 1)), "shapes"),
        (lambda: Quadratic(torch.ones(2, 1), torch.ones(2, 1)), "shapes"),
        (lambda: Quadratic(torch.ones(0), torch.ones(0, 3)), "at least one node"),
        (lambda: Quadratic.synthetic(nodes=0), "at least one node"),
        (lambda: Quadratic.synthetic(dim=0), "one coordinate"),
        (lambda: Quadratic.synthetic(sigma2=-1.0), "sigma2 is a variance"),
        (lambda: Quadratic.synthetic(zeta2=math.nan), "zeta2 is a variance"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(GossamerError, match=words):
        make()
