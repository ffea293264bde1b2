"""Measured heterogeneity and noise."""

import pytest
import torch

from gossamer import GossamerError
from gossamer.problems import Logistic, NonconvexCosine, Quadratic
from gossamer.theory import heterogeneity, noise


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
