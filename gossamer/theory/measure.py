"""The two quantities of a problem that the theory speaks of, measured at a point."""

import torch
from torch import Tensor

from gossamer.errors import InputError
from gossamer.problems.contract import Problem


def heterogeneity(problem: Problem, x: Tensor) -> float:
    """zeta^2 of Assumption 5 at x [d]: (1/N) sum_i |grad f_i(x) - grad f(x)|^2, exactly.

    >>> from gossamer.problems import NonconvexCosine
    >>> problem = NonconvexCosine(nodes=8, zeta2=25.0)
    >>> round(heterogeneity(problem, problem.optimum()), 9)
    25.0
    """
    return problem.heterogeneity(_point(problem, x))


@torch.no_grad()
def noise(problem: Problem, x: Tensor, *, samples: int = 1000, seed: int = 0) -> float:
    """sigma^2 of Assumption 4 at x [d], estimated: the largest over the nodes of the mean of |g_i - grad f_i(x)|^2.

    The mean runs over `samples` stochastic gradients g_i; `problem.noise(x)` is the exact value.

    >>> from gossamer.problems import Quadratic
    >>> problem = Quadratic.synthetic(nodes=4, dim=3, sigma2=2.0)
    >>> 1.8 < noise(problem, problem.start(), samples=500) < 2.3
    True
    """
    if samples < 1:
        raise InputError(f"Measuring the noise needs at least one stochastic gradient, but samples is {samples}.")
    common = _point(problem, x).expand(problem.n, problem.dim)
    generator = torch.Generator().manual_seed(seed)
    full = problem.gradient(common)
    squares = torch.zeros(problem.n, dtype=torch.float64)
    for _ in range(samples):
        squares += (problem.stochastic_gradient(common, generator) - full).square().sum(1)
    return float(squares.max()) / samples


def _point(problem: Problem, x: Tensor) -> Tensor:
    if x.shape != (problem.dim,):
        raise InputError(
            f"The point must be one vector of {problem.dim} coordinates, common to all nodes, but its shape is "
            f"{tuple(x.shape)}."
        )
    return x.to(problem.dtype)
