"""The paper's synthetic problem: quadratics whose curvature and centre differ from node to node."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gossamer.errors import InputError
from gossamer.problems.contract import Problem, check_sizes, check_variance


class Quadratic(Problem):
    """f_i(x) = 1/2 |a_i x - b_i|^2, with one number a_i and one vector b_i for each node.

    `scales` [N] holds the a_i, `targets` [N, d] the b_i. Gradient noise is N(0, sigma2/d I).

    >>> problem = Quadratic.synthetic(nodes=4, dim=2, zeta2=25.0, seed=0)
    >>> round(float(problem.mean_gradient(problem.optimum()).norm()), 12)
    0.0
    """

    def __init__(self, scales: Tensor, targets: Tensor, sigma2: float = 0.0) -> None:
        if scales.dim() != 1 or targets.dim() != 2 or len(scales) != len(targets):
            raise InputError(
                f"Quadratic needs scales [N] and targets [N, d], but they have the shapes {tuple(scales.shape)} and "
                f"{tuple(targets.shape)}."
            )
        check_variance("sigma2", sigma2)
        self.n, self.dim = targets.shape
        check_sizes(self.n, self.dim)
        self.dtype = targets.dtype
        self.sigma2 = sigma2
        self.scales = scales.to(targets.dtype)
        self.targets = targets
        self._curvature = self.scales.square()[:, None]
        self._pull = self.scales[:, None] * targets

    @classmethod
    def synthetic(
        cls,
        nodes: int = 25,
        dim: int = 50,
        zeta2: float = 0.0,
        sigma2: float = 0.0,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> "Quadratic":
        """The paper's experiment: a_i = i/sqrt(N) and b_i ~ N(0, zeta2/i^2 I), i = 1..N."""
        check_sizes(nodes, dim)
        check_variance("zeta2", zeta2)
        i = torch.arange(1, nodes + 1, dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randn(nodes, dim, generator=generator, dtype=torch.float64)
        return cls((i / math.sqrt(nodes)).to(dtype), (draws * math.sqrt(zeta2) / i[:, None]).to(dtype), sigma2)

    def among(self, nodes: Sequence[int]) -> "Quadratic":
        """Those of some nodes, with their a_i and b_i."""
        rows = list(nodes)
        return Quadratic(self.scales[rows], self.targets[rows], self.sigma2)

    def losses(self, x: Tensor) -> Tensor:
        """1/2 |a_i x - b_i|^2."""
        return (self.scales[:, None] * x - self.targets).square().sum(1) / 2

    def gradient(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """a_i^2 x - a_i b_i."""
        return torch.mul(x, self._curvature, out=out).sub_(self._pull)

    def squared_gradient_norms(self, points: Tensor) -> Tensor:
        """|mean(a^2) x - mean(a b)|^2."""
        return (points * self._curvature.mean() - self._pull.mean(0)).square().sum(-1)

    @property
    def smoothness(self) -> float:
        """The largest a_i^2."""
        return float(self._curvature.max())

    @property
    def mean_curvature(self) -> float:
        """The curvature of f: the mean of the a_i^2."""
        return float(self._curvature.mean())

    def optimum(self) -> Tensor:
        """sum(a_i b_i) / sum(a_i^2)."""
        return self._pull.mean(0) / self._curvature.mean()

    def stall(self, weights: Tensor, lr: float) -> Tensor:
        """Where DSGD, QG-DSGDm and DecentLaM stop without noise: X with (I - W + eta W A^2) X = eta W (A b).

        DSGDm stops at the same point for eta/(1 - beta). The bias, its distance from the optimum, grows with how
        different the b_i are.
        """
        w = weights.to(torch.float64)
        curvature, pull = self._curvature.to(torch.float64), self._pull.to(torch.float64)
        identity = torch.eye(self.n, dtype=torch.float64)
        limit: Tensor = torch.linalg.solve(identity - w + lr * w * curvature.T, lr * w @ pull)
        return limit
