"""Logistic regression on data that differs from node to node: convex, with noise from mini-batches."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gossamer.errors import InputError
from gossamer.problems.contract import Problem, check_sizes

# Entries of the table [points, samples] that `squared_gradient_norms` fills at a time.
TABLE = 2**20


class Logistic(Problem):
    """f_i(x) = mean_j log(1 + exp(-y_ij a_ij . x)) + (ridge/2) |x|^2 over the samples j of node i.

    `features` [N, m, d] holds the a_ij and `labels` [N, m] the y_ij, each -1 or 1. A stochastic gradient is the mean
    over `batch` samples that every node draws from its own, with replacement; without `batch` it is the full gradient.

    >>> problem = Logistic.synthetic(nodes=4, samples=20, dim=3, heterogeneity=1.0, seed=0)
    >>> bool(problem.mean_gradient(problem.optimum()).norm() < 1e-12)
    True
    """

    def __init__(self, features: Tensor, labels: Tensor, ridge: float = 0.01, batch: int | None = None) -> None:
        if features.dim() != 3 or labels.shape != features.shape[:2]:
            raise InputError(
                f"Logistic needs features [N, m, d] and labels [N, m], but they have the shapes "
                f"{tuple(features.shape)} and {tuple(labels.shape)}."
            )
        self.n, self.samples, self.dim = features.shape
        check_sizes(self.n, self.dim)
        if self.samples < 1:
            raise InputError("Logistic needs at least one sample at every node, but there are none.")
        if not bool((labels.abs() == 1).all()):
            raise InputError("Logistic needs labels that are -1 or 1; turn labels 0 and 1 into 2 * labels - 1.")
        if not ridge > 0:
            raise InputError(
                f"Logistic needs ridge > 0, but ridge is {ridge:g}: without it separable data has no optimum; try 0.01."
            )
        if batch is not None and batch < 1:
            raise InputError(f"A mini-batch needs at least one sample, not {batch}; None means all of them.")
        self.dtype = features.dtype
        self.features = features
        self.labels = labels.to(features.dtype)
        self.ridge = ridge
        self.batch = batch
        # y_ij a_ij: the only form in which the data enters f_i.
        self._signed = features * self.labels[:, :, None]
        self._rows = torch.arange(self.n)[:, None]

    @classmethod
    def synthetic(
        cls,
        nodes: int = 8,
        samples: int = 50,
        dim: int = 10,
        heterogeneity: float = 1.0,
        ridge: float = 0.01,
        batch: int | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> "Logistic":
        """Samples whose position and labels are shifted from node to node, both by `heterogeneity` = h.

        a_ij = h s_i + z_ij, and y_ij = 1 with probability 1/(1 + exp(-w . z_ij - 2 h k_i)), where w ~ N(0, I) is common
        to all and s_i ~ N(0, I), k_i ~ N(0, 1), z_ij ~ N(0, I). With h = 0 all nodes draw from one distribution; a
        large h leaves most nodes with one label.
        """
        check_sizes(nodes, dim)
        if samples < 1:
            raise InputError(f"Logistic needs at least one sample at every node, but samples is {samples}.")
        if not heterogeneity >= 0:
            raise InputError(f"heterogeneity is the size of a shift and cannot be {heterogeneity:g}; use 0 or more.")
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        truth, shift, skew, spread = normal(dim), normal(nodes, 1, dim), normal(nodes, 1), normal(nodes, samples, dim)
        chance = torch.sigmoid(spread @ truth + 2 * heterogeneity * skew)
        labels = 2 * torch.bernoulli(chance, generator=generator) - 1
        return cls((heterogeneity * shift + spread).to(dtype), labels, ridge, batch)

    def among(self, nodes: Sequence[int]) -> "Logistic":
        """That of some nodes, with their samples."""
        rows = list(nodes)
        return Logistic(self.features[rows], self.labels[rows], self.ridge, self.batch)

    def losses(self, x: Tensor) -> Tensor:
        """mean_j log(1 + exp(-y_ij a_ij . x)) + (ridge/2) |x|^2."""
        return softplus(-(self._signed @ x)).mean(1) + self.ridge / 2 * x.square().sum()

    def gradient(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """-mean_j y_ij a_ij / (1 + exp(y_ij a_ij . x_i)) + ridge x_i."""
        return self._mean_gradient_of(self._signed, x, out)

    def stochastic_gradient(self, x: Tensor, generator: torch.Generator, out: Tensor | None = None) -> Tensor:
        """The same mean over `batch` samples of every node, drawn with replacement."""
        if self.batch is None:
            return self.gradient(x, out)
        drawn = torch.randint(self.samples, (self.n, self.batch), generator=generator)
        return self._mean_gradient_of(self._signed[self._rows, drawn], x, out)

    @property
    def noisy(self) -> bool:
        """Whether gradients come from mini-batches."""
        return self.batch is not None

    def noise(self, x: Tensor) -> float:
        """The exact variance of a mini-batch gradient, largest node: that of one sample's gradient over `batch`."""
        if self.batch is None:
            return 0.0
        single = self._signed * torch.sigmoid(-(self._signed @ x))[:, :, None]
        variance = (single - single.mean(1, keepdim=True)).square().sum(2).mean(1)
        return float(variance.max()) / self.batch

    def squared_gradient_norms(self, points: Tensor) -> Tensor:
        """|grad f(x)|^2 at many points, over the samples of all nodes at once."""
        data = self._signed.flatten(0, 1)
        norms = torch.empty(len(points), dtype=self.dtype)
        chunk = max(1, TABLE // len(data))
        for first in range(0, len(points), chunk):
            x = points[first : first + chunk]
            mean = self.ridge * x - torch.sigmoid(-(x @ data.T)) @ data / len(data)
            norms[first : first + chunk] = mean.square().sum(1)
        return norms

    @cached_property
    def smoothness(self) -> float:
        """L = max_i lambda_max(A_i^T A_i)/(4 m) + ridge, because the logistic function's slope is at most 1/4."""
        largest = torch.linalg.matrix_norm(self.features.double(), ord=2).max()
        return float(largest) ** 2 / (4 * self.samples) + self.ridge

    def optimum(self) -> Tensor:
        """The minimiser of f by Newton's method, to the rounding of double precision."""
        return self._optimum.to(self.dtype)

    @cached_property
    def _optimum(self) -> Tensor:
        """Newton's method on grad f = 0; a step is halved until it shortens the gradient, and none does at the end."""
        data = self._signed.double().flatten(0, 1)
        identity = torch.eye(self.dim, dtype=torch.float64)

        def gradient(x: Tensor) -> Tensor:
            return self.ridge * x - data.T @ torch.sigmoid(-(data @ x)) / len(data)

        x = torch.zeros(self.dim, dtype=torch.float64)
        grad, step = gradient(x), 1.0
        while step > 1e-6 and bool(grad.any()):
            slope = torch.sigmoid(data @ x)
            slope = slope * (1 - slope)
            direction = torch.linalg.solve(data.T @ (slope[:, None] * data) / len(data) + self.ridge * identity, grad)
            step = 1.0
            while step > 1e-6:
                trial = x - step * direction
                trial_grad = gradient(trial)
                if trial_grad.norm() < (1 - step / 4) * grad.norm():
                    x, grad = trial, trial_grad
                    break
                step /= 2
        return x

    def _mean_gradient_of(self, signed: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
        """ridge x_i - mean_j b_ij / (1 + exp(b_ij . x_i)) for the signed samples b [N, m, d]."""
        pull = torch.sigmoid(-torch.bmm(signed, x[:, :, None]))
        mean = torch.bmm(signed.mT, pull)[:, :, 0]
        return torch.mul(x, self.ridge, out=out).sub_(mean, alpha=1 / signed.shape[1])
