"""The convergence rates that the paper proves or quotes, term by term and without their constants.

Each bounds the mean over R rounds of E|grad f(xbar)|^2, up to a constant, at the best step size. They compare how
methods depend on p, beta, N and zeta^2; for a number that is a true upper bound see `gossamer.theory.bound`.
"""

import math
from dataclasses import dataclass

from gossamer.errors import InputError
from gossamer.problems.contract import check_variance
from gossamer.theory.constants import ProblemConstants, check_momentum, check_rounds


@dataclass(frozen=True)
class Rate:
    """The three terms of a rate; the first decays like R^-1/2, the second like R^-2/3, the third like R^-1."""

    noise: float
    """The cost of the averaged gradient noise: sqrt(r_0 sigma^2 L / (N R)) for every method (linear speed-up in N)."""
    disagreement: float
    """The cost of the distance between nodes, which comes from their noise and (some methods) their different data."""
    start: float
    """The cost of the way from the start, without any noise."""

    @property
    def total(self) -> float:
        """The sum of the three."""
        return self.noise + self.disagreement + self.start


def momentum_tracking(constants: ProblemConstants, rounds: float, beta: float = 0.9) -> Rate:
    """Theorem 1, for any beta in [0, 1) and R >= 1. No zeta^2 enters.

    sqrt(r_0 s^2 L/(N R)) + (r_0^2 s^2 L^2/(p^4 R^2 (1-b)) (1 + p b^2/(1-b)))^(1/3)
        + L r_0/((1-b) p^2 R) sqrt(1 + b^2/((1-b^2)^3 p)),     s^2 = sigma^2, b = beta

    >>> one = ProblemConstants(nodes=4, p=1.0, smoothness=1.0, gap=1.0, sigma2=1.0)
    >>> rate = momentum_tracking(one, rounds=64, beta=0.0)
    >>> [round(term, 6) for term in (rate.noise, rate.disagreement, rate.start)]
    [0.0625, 0.0625, 0.015625]
    """
    check_momentum(beta)
    p, smoothness, gap = constants.p, constants.smoothness, constants.gap
    inner = (
        (gap * smoothness) ** 2 * constants.sigma2 / (p**4 * rounds**2 * (1 - beta)) * (1 + p * beta**2 / (1 - beta))
    )
    start = smoothness * gap / ((1 - beta) * p**2 * rounds) * math.sqrt(1 + beta**2 / ((1 - beta**2) ** 3 * p))
    return Rate(_noise(constants, rounds), math.cbrt(inner), start)


def gradient_tracking(constants: ProblemConstants, rounds: float) -> Rate:
    """The Corollary of Theorem 1: beta = 0, for any R >= 1.

    sqrt(r_0 s^2 L/(N R)) + (r_0 s L/(p^2 R))^(2/3) + L r_0/(p^2 R)
    """
    return momentum_tracking(constants, rounds, beta=0.0)


def gradient_tracking_from_zero(
    constants: ProblemConstants, rounds: float, *, smallest_eigenvalue: float, initial_heterogeneity: float
) -> Rate:
    """Gradient Tracking started from c = 0, by Koloskova et al. (NeurIPS 2021), as the paper quotes it.

    sqrt(r_0 s^2 L/(N R)) + (r_0 s L/((sqrt(p) c + p sqrt(N)) R))^(2/3) + L (r_0 + L zeta_0^2)/(p c R)

    with c = 1 - min(lambda_min, 0)^2 >= p, up to logarithms. `initial_heterogeneity` is zeta_0^2, that of the first
    gradients. It holds only for R > (2/p) log(50/p (1 + log 1/p)).
    """
    check_variance("initial_heterogeneity", initial_heterogeneity)
    if not -1 < smallest_eigenvalue <= 1:
        raise InputError(
            f"The smallest eigenvalue is {smallest_eigenvalue:g}, but it must be in (-1, 1]; lazy weights (I + W)/2 "
            f"bring it there."
        )
    p, smoothness, gap = constants.p, constants.smoothness, constants.gap
    least = 2 / p * math.log(50 / p * (1 + math.log(1 / p)))
    if not rounds > least:
        raise InputError(
            f"This rate of Gradient Tracking holds for more than {least:.1f} rounds at p = {p:.4g}, but rounds is "
            f"{rounds:g}; take more rounds, or `gradient_tracking`, which holds from the first."
        )
    c = 1 - min(smallest_eigenvalue, 0.0) ** 2
    width = math.sqrt(p) * c + p * math.sqrt(constants.nodes)
    disagreement = math.cbrt((gap * smoothness / (width * rounds)) ** 2 * constants.sigma2)
    start = smoothness * (gap + smoothness * initial_heterogeneity) / (p * c * rounds)
    return Rate(_noise(constants, rounds), disagreement, start)


def qg_dsgdm(constants: ProblemConstants, rounds: float, *, zeta2: float, beta: float) -> Rate:
    """QG-DSGDm with mu = beta, by Lin et al. (ICML 2021), as the paper quotes it. It needs beta <= p/(21 + p) < 0.05.

    sqrt(r_0 s^2 L/(N R)) + (r_0^2 L^2 (zeta^2 + s^2)/(p^2 R^2))^(1/3) + L r_0/R (1/p + 1/(1-b) + b/(1-b)^3)
    """
    check_momentum(beta)
    check_variance("zeta2", zeta2)
    p, smoothness, gap = constants.p, constants.smoothness, constants.gap
    if beta > p / (21 + p):
        raise InputError(
            f"The rate of QG-DSGDm is proven only for beta <= p/(21 + p) = {p / (21 + p):.4g}, but beta is {beta:g}; "
            f"take a smaller beta, or Momentum Tracking, whose rate holds for any beta below 1."
        )
    disagreement = math.cbrt((gap * smoothness / (p * rounds)) ** 2 * (zeta2 + constants.sigma2))
    start = smoothness * gap / rounds * (1 / p + 1 / (1 - beta) + beta / (1 - beta) ** 3)
    return Rate(_noise(constants, rounds), disagreement, start)


def _noise(constants: ProblemConstants, rounds: float) -> float:
    """sqrt(r_0 sigma^2 L/(N R))."""
    check_rounds(rounds)
    return math.sqrt(constants.gap * constants.sigma2 * constants.smoothness / (constants.nodes * rounds))
