"""What every problem inherits."""

import pytest
import torch

from gossamer.problems import Problem


class Parabolas(Problem):
    """f_i(x) = (i + 1)/2 |x|^2 on two nodes: the least a user has to write."""

    n, dim = 2, 2

    def losses(self, x):
        return torch.tensor([0.5, 1.0], dtype=torch.float64) * x.square().sum()

    def gradient(self, x, out=None):
        return torch.mul(x, torch.tensor([[1.0], [2.0]], dtype=torch.float64), out=out)

    @property
    def smoothness(self):
        return 2.0

    def optimum(self):
        return torch.zeros(2, dtype=torch.float64)


def test_the_derived_quantities_by_hand():
    problem = Parabolas()
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert problem.loss(x) == pytest.approx(18.75)
    assert problem.local_gradients(x).tolist() == [[3.0, 4.0], [6.0, 8.0]]
    assert problem.mean_gradient(x).tolist() == [4.5, 6.0]
    assert problem.squared_gradient_norms(torch.stack([x, 2 * x])).tolist() == [56.25, 225.0]
    assert problem.heterogeneity(x) == pytest.approx(6.25)
    assert not problem.noisy
    assert problem.noise(x) == 0.0
