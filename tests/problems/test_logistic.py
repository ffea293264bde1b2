"""Logistic regression: gradients, smoothness, optimum, mini-batch noise, and who reaches the optimum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import DSGD, GossamerError, GradientTracking, MomentumTracking, minimize, topology
from gossamer.problems import Logistic, logistic


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 4),
    samples=st.integers(1, 6),
    dim=st.integers(1, 4),
    h=st.floats(0, 3),
    seed=st.integers(0, 99),
)
def test_gradients_are_those_of_the_losses(nodes, samples, dim, h, seed):
    problem = Logistic.synthetic(nodes=nodes, samples=samples, dim=dim, heterogeneity=h, ridge=0.3, seed=seed)
    x = normal(dim, seed=seed)
    expected = torch.autograd.functional.jacobian(problem.losses, x)
    assert torch.allclose(problem.local_gradients(x), expected, rtol=1e-12, atol=1e-12)


def test_losses_by_hand():
    problem = Logistic(torch.tensor([[[2.0], [1.0]]]).double(), torch.tensor([[1.0, -1.0]]), ridge=0.5)
    x = torch.tensor([3.0]).double()
    expected = (math.log1p(math.exp(-6.0)) + math.log1p(math.exp(3.0))) / 2 + 0.25 * 9
    assert problem.loss(x) == pytest.approx(expected, rel=1e-14)


def test_each_node_has_its_gradient_at_its_own_point():
    problem = Logistic.synthetic(nodes=3, samples=5, dim=2)
    points = normal(3, 2)
    out = torch.empty_like(points)
    assert problem.gradient(points, out=out) is out
    for i in range(3):
        assert torch.allclose(out[i], problem.local_gradients(points[i])[i], rtol=1e-14, atol=0)


@pytest.mark.parametrize("table", [1, 100, 2**20])
def test_squared_gradient_norms_agree_with_single_points(monkeypatch, table):
    monkeypatch.setattr(logistic, "TABLE", table)
    problem = Logistic.synthetic(nodes=3, samples=7, dim=2)
    points = normal(11, 2)
    single = torch.stack([problem.mean_gradient(x).square().sum() for x in points])
    assert torch.allclose(problem.squared_gradient_norms(points), single, rtol=1e-11)


@pytest.mark.parametrize("heterogeneity", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("ridge", [1.0, 1e-4])
def test_newton_reaches_the_optimum(heterogeneity, ridge):
    problem = Logistic.synthetic(heterogeneity=heterogeneity, ridge=ridge)
    best = problem.optimum()
    assert float(problem.mean_gradient(best).norm()) < 1e-12
    for seed in range(3):
        assert problem.loss(best + 0.01 * normal(problem.dim, seed=seed)) > problem.loss(best)


def test_an_optimum_at_the_origin_is_found():
    problem = Logistic(torch.ones(1, 2, 1).double(), torch.tensor([[1.0, -1.0]]))
    assert torch.equal(problem.optimum(), torch.zeros(1, dtype=torch.float64))


def test_smoothness_bounds_every_ratio_and_is_attained():
    problem = Logistic.synthetic(nodes=3, samples=20, dim=4, heterogeneity=2.0)
    for seed in range(50):
        x = 0.3 * normal(4, seed=seed)
        y = x + 0.1 * normal(4, seed=seed + 1000)
        change = (problem.local_gradients(x) - problem.local_gradients(y)).norm(dim=1)
        assert float(change.max() / (x - y).norm()) <= problem.smoothness
    # At the origin every sample's curvature is at its largest, 1/4: along the leading direction L is attained.
    gram = problem.features.mT @ problem.features
    worst = int(torch.linalg.eigvalsh(gram)[:, -1].argmax())
    lead = 1e-5 * torch.linalg.eigh(gram[worst]).eigenvectors[:, -1]
    change = (problem.local_gradients(lead) - problem.local_gradients(-lead))[worst].norm() / 2e-5
    assert float(change) == pytest.approx(problem.smoothness, rel=1e-6)


def test_heterogeneity_grows_with_the_parameter():
    measured = []
    for h in (0.0, 0.5, 1.0, 2.0):
        problem = Logistic.synthetic(samples=400, heterogeneity=h)
        measured.append(problem.heterogeneity(problem.optimum()))
    assert measured == sorted(measured)
    assert measured[-1] > 10 * measured[0]


def test_a_large_parameter_skews_the_labels():
    shares = (Logistic.synthetic(heterogeneity=10.0).labels > 0).double().mean(1)
    assert int(((shares < 0.1) | (shares > 0.9)).sum()) >= 5
    balanced = (Logistic.synthetic(heterogeneity=0.0).labels > 0).double().mean(1)
    assert bool(((balanced > 0.2) & (balanced < 0.8)).all())


def test_mini_batches_are_unbiased_and_have_the_stated_noise():
    problem = Logistic.synthetic(nodes=3, samples=10, dim=2, batch=4)
    x = normal(2)
    common, generator = x.expand(3, 2), torch.Generator().manual_seed(0)
    out = torch.empty(3, 2, dtype=torch.float64)
    noise = torch.stack(
        [problem.stochastic_gradient(common, generator, out=out) - problem.gradient(common) for _ in range(4000)]
    )
    variance = noise.square().sum(2).mean(0)
    assert float(variance.max()) == pytest.approx(problem.noise(x), rel=0.05)
    assert float(noise.mean(0).norm(dim=1).max()) < 5 * math.sqrt(problem.noise(x) / 4000)


def test_the_noise_of_one_sample_is_the_spread_of_the_samples():
    problem = Logistic(torch.tensor([[[1.0], [3.0]]]).double(), torch.tensor([[1.0, 1.0]]), batch=1)
    # at x = 0 the samples' gradients are -1/2 and -3/2: each is 1/2 from their mean
    assert problem.noise(torch.zeros(1).double()) == pytest.approx(0.25)


def test_without_batch_there_is_no_noise():
    problem = Logistic.synthetic()
    x = normal(8, 10)
    assert not problem.noisy
    assert problem.noise(problem.start()) == 0.0
    assert torch.equal(problem.stochastic_gradient(x, torch.Generator()), problem.gradient(x))


def test_float32_is_kept():
    problem = Logistic.synthetic(dtype=torch.float32, batch=3)
    assert problem.optimum().dtype == torch.float32
    gradient = problem.stochastic_gradient(torch.ones(8, 10), torch.Generator().manual_seed(0))
    assert gradient.dtype == torch.float32
    assert math.isclose(problem.smoothness, Logistic.synthetic().smoothness, rel_tol=1e-6)


def distances_after(problem, method, rounds, lr):
    run = minimize(problem, method, topology.ring(8), lr=lr, rounds=rounds)
    return (run.x - problem.optimum()).norm(dim=1)


def test_tracking_reaches_the_optimum_on_every_node_and_dsgd_does_not():
    problem = Logistic.synthetic(dim=4, samples=20, heterogeneity=1.0, ridge=0.2)
    assert float(distances_after(problem, MomentumTracking(0.8), 1500, 0.02).max()) < 1e-9
    assert float(distances_after(problem, GradientTracking(), 1500, 0.1).max()) < 1e-9
    assert float(distances_after(problem, DSGD(), 1500, 0.1).min()) > 1e-3


def test_mini_batches_drive_a_run_and_stop_it_at_the_noise():
    quiet = Logistic.synthetic(dim=4, samples=20, ridge=0.2)
    noisy = Logistic(quiet.features, quiet.labels, ridge=0.2, batch=5)
    run = minimize(noisy, MomentumTracking(0.8), topology.ring(8), lr=0.02, rounds=1500)
    assert 1e-6 < run.tail_mean() < noisy.noise(noisy.optimum())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Logistic(torch.ones(2, 3), torch.ones(2, 3)), "shapes"),
        (lambda: Logistic(torch.ones(2, 3, 1), torch.ones(2, 4)), "shapes"),
        (lambda: Logistic(torch.ones(2, 0, 1), torch.ones(2, 0)), "at least one sample"),
        (lambda: Logistic(torch.ones(2, 3, 0), torch.ones(2, 3)), "one coordinate"),
        (lambda: Logistic(torch.ones(2, 3, 1), torch.zeros(2, 3)), "2 \\* labels - 1"),
        (lambda: Logistic.synthetic(ridge=0.0), "ridge > 0"),
        (lambda: Logistic.synthetic(batch=0), "mini-batch"),
        (lambda: Logistic.synthetic(samples=0), "samples is 0"),
        (lambda: Logistic.synthetic(heterogeneity=-1.0), "cannot be -1"),
        (lambda: Logistic.synthetic(nodes=0), "at least one node"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(GossamerError, match=words):
        make()
