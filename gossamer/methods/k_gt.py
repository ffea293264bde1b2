"""K-GT: gradient tracking with several local steps between two exchanges."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction, whole_number
from gossamer.errors import InputError
from gossamer.methods.contract import Facts, Method, Scalar, State, add_scaled_, decay_and_add_
from gossamer.network.contract import Network


@dataclass
class KGTState(State):
    """The momentum u, the correction c, and since the last exchange: where x was, how far steps went, how many."""

    keeps: ClassVar[tuple[str, ...] | None] = ("u", "c")

    u: Tensor
    c: Tensor
    start: Tensor
    passed: Tensor
    """The sum of the step sizes, for each coordinate."""
    steps: int
    started: bool

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """C <- C - mean C: its mean over the present nodes is zero again."""
        self.c.sub_(net.average(self.c, round=round))
        self.started = True

    def shrink(self, x: Tensor, factor: Scalar) -> None:
        """The decay is no part of the pseudo-gradient."""
        super().shrink(x, factor)
        self.start.mul_(factor)

    def correction(self) -> Tensor:
        """C."""
        return self.c


@dataclass(frozen=True, eq=False)
class KGT(Method):
    """K-GT: K local steps with a correction of the gradient, then one exchange.

    K times:  U <- beta U + G;  X <- X - eta (U + C)      (silent)
    then:     Z = (X_start - X)/(K eta)                   (the pseudo-gradient of the K steps)
              C <- C - Z + W Z                            (mean C = 0)
              X <- W X

    `every` is K. At the first batch C starts as -(g_i - mean g)/(1 - beta) and U as -C, at the price of one all-reduce:
    the first direction is the mean gradient. In the paper beta is 0. Where the step size changes between two exchanges,
    K eta is the sum of the step sizes; where that is 0, C stays as it is.
    Liu, Lin, Koloskova and Stich, "Decentralized gradient tracking with local steps", 2023.
    """

    name = "k-gt"
    facts = Facts(
        title="K-GT",
        citation="Liu et al., 2023",
        sends=2,
        every=5,
        starts_with_all_reduce=True,
        exact=True,
        exact_on_schedules=True,
        preserves_mean=True,
        equals_sgd_alone=True,
        tracks=True,
    )

    every: int = 5
    beta: Scalar = 0.0

    def __post_init__(self) -> None:
        take_every(self, self.every)
        check_fraction("K-GT", "beta", self.beta)

    def initial(self, x: Tensor, net: Network) -> KGTState:
        """U = C = 0; they start at the first batch."""
        u, c, passed = (torch.zeros_like(x) for _ in range(3))
        return KGTState(u, c, x.clone(), passed, steps=0, started=False)

    def step(self, state: KGTState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """X <- X - eta (U + C); in every K-th round C <- C - Z + W Z and X <- W X."""
        u, c = state.u, state.c
        if not state.started:
            u.copy_(grad).sub_(net.average(grad, round=round)).div_(1 - self.beta)
            c.copy_(u).neg_()
            state.started = True
        if state.steps == 0:
            state.start.copy_(x)
            state.passed.zero_()
        decay_and_add_(u, self.beta, grad)
        add_scaled_(add_scaled_(x, -lr, u), -lr, c)
        state.passed.add_(lr)
        state.steps = (state.steps + 1) % self.every
        if state.steps == 0:
            z = torch.where(state.passed > 0, (state.start - x) / state.passed, 0.0)
            wx, wz = net.mix(x, z, round=round).wait()
            c.add_(wz).sub_(z)
            x.copy_(wx)


def take_every(method: Any, every: int | Tensor) -> None:
    """Check the number of steps from one exchange to the next, and let the method's facts say it."""
    if isinstance(every, Tensor):
        raise InputError(
            f"The parameter groups differ in every, the steps between two exchanges of {method.facts.title}, which all "
            f"must share."
        )
    whole_number(every, f"the steps between two exchanges ('every') of {method.facts.title}", least=1)
    object.__setattr__(method, "facts", replace(method.facts, every=every))
