"""Measured heterogeneity and noise."""

import pytest
import torch
from torch import nn

from gossamer import GossamerError
from gossamer.data import Dataset, load, partition
from gossamer.problems import Logistic, NonconvexCosine, Quadratic
from gossamer.theory import gradient_dissimilarity, heterogeneity, noise


def test_gradient_dissimilarity_by_hand():
    nodes = load("digits").split(partition.k_class(nodes=2, k=5, seed=0))  # more than one batch on every node
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    gradients = []
    for own in nodes.partition.indices:
        output = model.eval()(nodes.pipeline.batch(nodes.dataset.train_inputs, own))
        loss = nn.functional.cross_entropy(output, nodes.dataset.train_targets[own])
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())]))
    stacked = torch.stack(gradients)
    expected = (stacked - stacked.mean(0)).square().sum(1).mean()
    assert gradient_dissimilarity(model.train(), nodes) == pytest.approx(float(expected), rel=1e-4)
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_nodes_with_the_same_data_do_not_differ():
    digits = load("digits")
    doubled = Dataset.from_tensors(digits.train_inputs.repeat(2, 1, 1, 1), digits.train_targets.repeat(2))
    count = len(digits.train_targets)
    twins = doubled.split(partition.from_lists([range(count), range(count, 2 * count)]), holdout=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert gradient_dissimilarity(model, twins) == pytest.approx(0, abs=1e-9)


def test_heterogeneity_by_hand():
    problem = Quadratic(torch.tensor([1.0, 1.0]).double(), torch.tensor([[1.0], [-3.0]]).double())
    assert heterogeneity(problem, torch.tensor([7.0])) == pytest.approx(4.0)


@pytest.mark.parametrize(
    "problem",
    [
        Quadratic.synthetic(nodes=4, dim=3, sigma2=2.0),
        NonconvexCosine(nodes=4, sigma2=0.5),
        Logistic.synthetic(nodes=4, samples=10, dim=3, batch=2),
    ],
    ids=lambda p: type(p).__name__,
)
def test_the_sampled_noise_is_the_exact_one(problem):
    x = problem.start()
    assert noise(problem, x, samples=4000) == pytest.approx(problem.noise(x), rel=0.06)
    assert noise(problem, x, samples=10, seed=1) == noise(problem, x, samples=10, seed=1)
    assert noise(problem, x, samples=10, seed=1) != noise(problem, x, samples=10, seed=2)


def test_exact_gradients_have_no_noise():
    problem = Quadratic.synthetic(nodes=4, dim=3)
    assert noise(problem, problem.start(), samples=3) == 0.0


def test_bad_input_gets_a_sentence():
    problem = Quadratic.synthetic(nodes=4, dim=3)
    with pytest.raises(GossamerError, match="3 coordinates"):
        heterogeneity(problem, torch.ones(4, 3))
    with pytest.raises(GossamerError, match="3 coordinates"):
        noise(problem, torch.ones(2))
    with pytest.raises(GossamerError, match="samples is 0"):
        noise(problem, problem.start(), samples=0)
