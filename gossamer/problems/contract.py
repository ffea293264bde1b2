"""The contract of an objective with known answers.

Node i holds f_i; the network minimises f = (1/N) sum_i f_i. Points are vectors [d]; `gradient` takes one point per
node, stacked into [N, d].
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from gossamer.errors import InputError


class Problem(ABC):
    """N local objectives with their gradients, smoothness, optimum and heterogeneity.

    A subclass sets `n`, `dim`, `dtype` and `sigma2`, the expected squared length of the Gaussian noise in a stochastic
    gradient. One whose noise comes from elsewhere overrides `noisy`, `noise` and `stochastic_gradient` together.

    >>> from gossamer.problems import Quadratic
    >>> problem: Problem = Quadratic.synthetic(nodes=4, dim=3, zeta2=1.0)
    >>> problem.local_gradients(problem.start()).shape
    torch.Size([4, 3])
    """

    n: int
    dim: int
    sigma2: float = 0.0
    dtype: torch.dtype = torch.float64

    @abstractmethod
    def losses(self, x: Tensor) -> Tensor:
        """f_i(x) of every node at one common point: [d] -> [N]."""

    @abstractmethod
    def gradient(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The full gradients: row i is the gradient of f_i at row i of x, [N, d] -> [N, d]."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L: every gradient of f_i is Lipschitz with this constant."""

    @abstractmethod
    def optimum(self) -> Tensor:
        """A point [d] at which f is smallest."""

    @property
    def noisy(self) -> bool:
        """Whether a stochastic gradient differs from the full one."""
        return self.sigma2 > 0

    def noise(self, x: Tensor) -> float:
        """sigma^2 of Assumption 4 at the common point x [d]: the largest E|stochastic - full gradient|^2 of a node."""
        return self.sigma2

    def stochastic_gradient(self, x: Tensor, generator: torch.Generator, out: Tensor | None = None) -> Tensor:
        """The full gradients plus independent noise N(0, sigma^2/d I), whose expected squared length is sigma^2."""
        grad = self.gradient(x, out)
        if self.noisy:
            noise = torch.empty_like(grad).normal_(std=(self.sigma2 / self.dim) ** 0.5, generator=generator)
            grad.add_(noise)
        return grad

    def start(self) -> Tensor:
        """The point from which all nodes start: all ones."""
        return torch.ones(self.dim, dtype=self.dtype)

    def among(self, nodes: Sequence[int]) -> "Problem":
        """The problem of some of the nodes: the mean of their objectives alone."""
        raise InputError(f"{type(self).__name__} does not say what some of its nodes minimize; use Quadratic.")

    def loss(self, x: Tensor) -> float:
        """f(x), the mean of the local objectives."""
        return float(self.losses(x).mean())

    def local_gradients(self, x: Tensor) -> Tensor:
        """The gradients of all f_i at one common point: [d] -> [N, d]."""
        return self.gradient(x.expand(self.n, self.dim))

    def mean_gradient(self, x: Tensor) -> Tensor:
        """The gradient of f: [d] -> [d]."""
        return self.local_gradients(x).mean(0)

    def squared_gradient_norms(self, points: Tensor) -> Tensor:
        """|grad f(x)|^2 at many points: [k, d] -> [k]."""
        return torch.stack([self.mean_gradient(x).square().sum() for x in points])

    def heterogeneity(self, x: Tensor) -> float:
        """zeta^2 of Assumption 5, measured at x: the mean over the nodes of |grad f_i(x) - grad f(x)|^2."""
        local = self.local_gradients(x)
        return float((local - local.mean(0)).square().sum(1).mean())


def check_sizes(nodes: int, dim: int) -> None:
    """Refuse a problem without nodes or coordinates."""
    if nodes < 1 or dim < 1:
        raise InputError(f"A problem needs at least one node and one coordinate, but it got nodes={nodes}, dim={dim}.")


def check_variance(name: str, value: float) -> None:
    """Refuse a negative variance."""
    if not value >= 0:
        raise InputError(f"{name} is a variance and cannot be {value:g}; use 0 or more.")
