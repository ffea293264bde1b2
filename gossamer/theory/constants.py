"""The numbers that every convergence bound of the paper depends on, and their checks."""

import math
from dataclasses import dataclass

from gossamer.errors import InputError
from gossamer.problems.contract import Problem, check_variance
from gossamer.topology import Topology


@dataclass(frozen=True)
class ProblemConstants:
    """What the theory needs to know of a problem on a network. There is no zeta^2: tracking does not depend on it.

    >>> from gossamer import problems, topology
    >>> ProblemConstants.of(problems.NonconvexCosine(nodes=8, sigma2=0.5), topology.hypercube(8)).sigma2
    0.5
    """

    nodes: int
    """N."""
    p: float
    """The mixing constant of Assumption 2, in (0, 1]."""
    smoothness: float
    """L of Assumption 3."""
    gap: float
    """r_0 = f(x_0) - f*."""
    sigma2: float = 0.0
    """The gradient noise of Assumption 4."""

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"A network needs at least one node, but nodes is {self.nodes}.")
        check_mixing(self.p)
        check_smoothness(self.smoothness)
        if not self.gap >= 0:
            raise InputError(f"The gap f(x_0) - f* is {self.gap:g}, but f* is the smallest value of f.")
        check_variance("sigma2", self.sigma2)

    @classmethod
    def of(cls, problem: Problem, topology: Topology) -> "ProblemConstants":
        """The constants of a problem on a static graph; gap and noise are those at the problem's start."""
        if topology.n != problem.n:
            raise InputError(f"The problem has {problem.n} nodes but the graph has {topology.n}; make them equal.")
        if not topology.is_static:
            raise InputError(
                f"The theory covers one mixing matrix for all rounds, but '{topology.name}' changes from round to "
                f"round, and its p belongs to a whole period; use a static graph such as ring."
            )
        start = problem.start()
        gap = problem.loss(start) - problem.loss(problem.optimum())
        return cls(problem.n, topology.p, problem.smoothness, max(gap, 0.0), problem.noise(start))


def check_mixing(p: float) -> None:
    """Refuse a mixing constant outside (0, 1]."""
    if not 0 < p <= 1:
        raise InputError(f"The mixing constant p is {p:g}, but it must be in (0, 1]; p = 0 means a disconnected graph.")


def check_smoothness(smoothness: float) -> None:
    """Refuse a smoothness constant that is not above zero."""
    if not 0 < smoothness < math.inf:
        raise InputError(f"The smoothness L is {smoothness:g}, but it must be a finite number above 0.")


def check_momentum(beta: float) -> None:
    """Refuse a momentum outside [0, 1)."""
    if not 0 <= beta < 1:
        raise InputError(f"The theory holds for 0 <= beta < 1, but beta is {beta:g}.")


def check_rounds(rounds: float) -> None:
    """Refuse a run without rounds."""
    if not rounds >= 1:
        raise InputError(f"The theory holds from one round on, but rounds is {rounds:g}.")


def check_step(lr: float) -> None:
    """Refuse a step size that is not above zero."""
    if not 0 < lr < math.inf:
        raise InputError(f"The step size is {lr:g}, but a bound needs a finite number above 0.")
