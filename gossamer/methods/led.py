"""LED: local exact diffusion, several local steps for each exchange of one vector."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction
from gossamer.methods.contract import Facts, Method, Scalar, State, add_scaled_, decay_and_add_
from gossamer.methods.k_gt import take_every
from gossamer.network.contract import Network
from gossamer.topology import Needs


@dataclass
class LEDState(State):
    """The momentum u, the correction y, and how many steps were made since the last exchange."""

    keeps: ClassVar[tuple[str, ...] | None] = ("u", "y")

    u: Tensor
    y: Tensor
    steps: int

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """Y <- Y - mean Y: its sum over the present nodes is zero again."""
        self.y.sub_(net.average(self.y, round=round))

    def correction(self) -> Tensor:
        """Y."""
        return self.y


@dataclass(frozen=True, eq=False)
class LED(Method):
    """LED: local exact diffusion.

    K times:  U <- beta U + G;  X <- X - eta U - Y/K      (silent)
    then:     P = X;  X <- W P;  Y <- Y + P - X           (sum of Y = 0)

    `every` is K. With K = 1 and beta = 0, which is the paper's choice, it is D^2. One vector per exchange.
    Alghunaim, "Local exact-diffusion for decentralized optimization and learning", IEEE TAC 2024.

    >>> from gossamer import topology
    >>> LED(every=20).check(topology.ring(8, weights="lazy"))
    """

    name = "led"
    facts = Facts(
        title="LED",
        citation="Alghunaim, IEEE TAC 2024",
        sends=1,
        every=5,
        needs=Needs(static=True, symmetric=True, smallest_eigenvalue=-1 / 3),
        exact=True,
        preserves_mean=True,
        equals_sgd_alone=True,
        tracks=True,
    )

    every: int = 5
    beta: Scalar = 0.0

    def __post_init__(self) -> None:
        take_every(self, self.every)
        check_fraction("LED", "beta", self.beta)

    def initial(self, x: Tensor, net: Network) -> LEDState:
        """U = Y = 0."""
        return LEDState(torch.zeros_like(x), torch.zeros_like(x), steps=0)

    def step(self, state: LEDState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """X <- X - eta U - Y/K; in every K-th round X <- W X, and Y takes what that moved."""
        u = decay_and_add_(state.u, self.beta, grad)
        add_scaled_(x, -lr, u).sub_(state.y, alpha=1 / self.every)
        state.steps = (state.steps + 1) % self.every
        if state.steps == 0:
            state.y.add_(x)
            net.mix(x.clone(), round=round, out=(x,)).wait()
            state.y.sub_(x)
