"""A smooth non-convex problem whose stationary points are all known: cosines, tilted differently at every node."""

import math

import torch
from torch import Tensor

from gossamer.problems.contract import Problem, check_sizes, check_variance


class NonconvexCosine(Problem):
    """f_i(x) = a_i sum_k (1 - cos x_k) + c_i . x, with mean a_i = 1 and sum_i c_i = 0.

    So f(x) = sum_k (1 - cos x_k), which is stationary exactly where every coordinate is a multiple of pi, and smallest
    (f* = 0) where every coordinate is a multiple of 2 pi. No f_i has a minimum once its tilt c_i is steep: only the
    network as a whole has one. The a_i run evenly from 1/2 to 3/2; the c_i are drawn at random and scaled so that the
    heterogeneity measured at every stationary point, mean_i |c_i|^2, is `zeta2` (a single node has none). Gradient
    noise is N(0, sigma2/d I).

    >>> problem = NonconvexCosine(nodes=4, dim=2, zeta2=25.0, seed=0)
    >>> round(problem.heterogeneity(problem.optimum()), 9)
    25.0
    """

    def __init__(
        self,
        nodes: int = 8,
        dim: int = 2,
        zeta2: float = 1.0,
        sigma2: float = 0.0,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check_sizes(nodes, dim)
        check_variance("zeta2", zeta2)
        check_variance("sigma2", sigma2)
        self.n, self.dim, self.sigma2, self.dtype = nodes, dim, sigma2, dtype
        amplitudes = torch.linspace(0.5, 1.5, nodes, dtype=torch.float64) if nodes > 1 else torch.ones(1)
        tilts = torch.randn(nodes, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        tilts -= tilts.mean(0)
        if nodes > 1:
            tilts *= math.sqrt(zeta2 / float(tilts.square().sum(1).mean()))
            # Again: nearly equal draws are scaled up a lot, and with them the rounding of their mean.
            tilts -= tilts.mean(0)
        self.amplitudes = amplitudes.to(dtype)
        self.tilts = tilts.to(dtype)

    def losses(self, x: Tensor) -> Tensor:
        """a_i sum_k (1 - cos x_k) + c_i . x."""
        return self.amplitudes * (1 - x.cos()).sum() + self.tilts @ x

    def gradient(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """a_i sin x + c_i."""
        return torch.sin(x, out=out).mul_(self.amplitudes[:, None]).add_(self.tilts)

    def squared_gradient_norms(self, points: Tensor) -> Tensor:
        """|sin x|^2."""
        return points.sin().square().sum(-1)

    @property
    def smoothness(self) -> float:
        """The largest a_i."""
        return float(self.amplitudes.max())

    def optimum(self) -> Tensor:
        """The minimum at the origin; `nearest_minimum` finds the others."""
        return torch.zeros(self.dim, dtype=self.dtype)

    def nearest_minimum(self, x: Tensor) -> Tensor:
        """The minimum of f nearest to each point: [..., d] -> [..., d]."""
        return 2 * math.pi * torch.round(x / (2 * math.pi))

    def nearest_stationary_point(self, x: Tensor) -> Tensor:
        """The minimum, saddle or maximum of f nearest to each point: [..., d] -> [..., d]."""
        return math.pi * torch.round(x / math.pi)
