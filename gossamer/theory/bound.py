"""Theorem 1 with its constants: a number that Momentum Tracking provably stays below."""

import math
from dataclasses import dataclass

from gossamer.errors import InputError
from gossamer.theory.constants import (
    ProblemConstants,
    check_mixing,
    check_momentum,
    check_rounds,
    check_smoothness,
    check_step,
)


@dataclass(frozen=True)
class Bound:
    """The three terms of the explicit bound on 1/(2(R+1)) sum_{r=0..R} E|grad f(xbar_r)|^2."""

    start: float
    """4 (1-beta)/(eta (R+1)) (f(x_0) - f*): falls with the rounds."""
    noise: float
    """2 L sigma^2 eta/(N (1-beta))."""
    disagreement: float
    """L^2/(1-beta)^3 (40 t/p^2 (10 + 29/p + 864/p^2) + 4 beta^2/(N (1-beta))) sigma^2 eta^2."""

    @property
    def total(self) -> float:
        """The bound: the sum of the three."""
        return self.start + self.noise + self.disagreement


def largest_step(p: float, beta: float, smoothness: float) -> float:
    """The largest step size the proof admits.

    eta_max = (1-beta)^2 p^2 / (16 L sqrt(7836 beta^2/((1-beta^2)^3 p) + 282))

    >>> round(largest_step(p=1.0, beta=0.0, smoothness=1.0) * 16 * 282**0.5, 12)
    1.0
    """
    check_mixing(p)
    check_momentum(beta)
    check_smoothness(smoothness)
    root = math.sqrt(7836 * beta**2 / ((1 - beta**2) ** 3 * p) + 282)
    return ((1 - beta) * p) ** 2 / (16 * smoothness * root)


def bound(constants: ProblemConstants, *, rounds: float, lr: float, beta: float) -> Bound:
    """What the proof of Theorem 1 gives for R rounds at the constant step size `lr`, started as the theorem asks.

    1/(2(R+1)) sum_{r=0..R} E|grad f(xbar_r)|^2
        <=  4 (1-beta)/(eta (R+1)) (f(x_0) - f*)  +  2 L sigma^2 eta/(N (1-beta))
        +  L^2/(1-beta)^3 (40 t/p^2 (10 + 29/p + 864/p^2) + 4 beta^2/(N (1-beta))) sigma^2 eta^2

    with t = 2 beta^2 p/(1-beta^2) + 4. It contains no zeta^2. A step size above `largest_step` is refused.

    >>> constants = ProblemConstants(nodes=8, p=1.0, smoothness=1.0, gap=1.0, sigma2=0.0)
    >>> bound(constants, rounds=10**6, lr=1e-3, beta=0.0).noise
    0.0
    """
    check_rounds(rounds)
    check_step(lr)
    p, smoothness = constants.p, constants.smoothness
    limit = largest_step(p, beta, smoothness)
    if lr > limit:
        raise InputError(
            f"The bound is proven for step sizes up to {limit:.4g} here (p = {p:.4g}, beta = {beta:g}, "
            f"L = {smoothness:g}), but lr is {lr:g}; take a smaller one."
        )
    t = 2 * beta**2 * p / (1 - beta**2) + 4
    spread = 40 * t / p**2 * (10 + 29 / p + 864 / p**2) + 4 * beta**2 / (constants.nodes * (1 - beta))
    return Bound(
        start=4 * (1 - beta) / (lr * (rounds + 1)) * constants.gap,
        noise=2 * smoothness * constants.sigma2 * lr / (constants.nodes * (1 - beta)),
        disagreement=smoothness**2 / (1 - beta) ** 3 * spread * constants.sigma2 * lr**2,
    )


def rounds_needed(target: float, constants: ProblemConstants, *, beta: float, lr: float | None = None) -> int:
    """The smallest R for which `bound` is at most `target`, at the largest step size it admits unless `lr` is given.

    >>> rounds_needed(0.01, ProblemConstants(nodes=8, p=1.0, smoothness=1.0, gap=1.0), beta=0.0)
    107474
    """
    eta = largest_step(constants.p, beta, constants.smoothness) if lr is None else lr
    first = bound(constants, rounds=1, lr=eta, beta=beta)
    floor = first.noise + first.disagreement
    if not target > floor:
        raise InputError(
            f"At the step size {eta:.4g} the noise alone keeps the bound above {floor:.4g}, so it never reaches "
            f"{target:g}; take a smaller lr or a larger target."
        )
    return max(1, math.ceil(2 * first.start / (target - floor)) - 1)
