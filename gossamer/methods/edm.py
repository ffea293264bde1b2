"""EDM: exact diffusion with momentum, which is D^2 with a heavy ball."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction
from gossamer.methods.contract import Facts, Method, Scalar, decay_and_add_, subtract_scaled
from gossamer.methods.d2 import D2State
from gossamer.network.contract import Network
from gossamer.topology import Needs


@dataclass
class EDMState(D2State):
    """The half step of the last round, P = X - eta U, and the momentum u."""

    keeps = ("u",)  # P = X, as before the first round, holds among any nodes

    u: Tensor


@dataclass(frozen=True, eq=False)
class EDM(Method):
    """EDM: exact diffusion with momentum.

    U  <- beta U + G
    P' = X - eta U
    X  <- W (P' + X - P);   P <- P'               (P = X before the first round)

    With beta = 0 it is D^2. Each P carries the step size of its own round, so that a change of step size leaves no
    drift behind. As in D^2, rounding accumulates.
    Hu, Chen, Liu and Mao, "A bias-correction decentralized stochastic gradient algorithm with momentum acceleration",
    2025.
    """

    name = "edm"
    facts = Facts(
        title="EDM",
        citation="Hu et al., 2025",
        sends=1,
        needs=Needs(static=True, symmetric=True, smallest_eigenvalue=-1 / 3),
        exact=True,
        preserves_mean=True,
        equals_sgd_alone=True,
    )

    beta: Scalar = 0.9

    def __post_init__(self) -> None:
        check_fraction("EDM", "beta", self.beta)

    def initial(self, x: Tensor, net: Network) -> EDMState:
        """U = 0 and P = X."""
        return EDMState(half=x.clone(), u=torch.zeros_like(x))

    def step(self, state: EDMState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """U <- beta U + G;  P' = X - eta U;  X <- W (P' + X - P);  P <- P'."""
        u = decay_and_add_(state.u, self.beta, grad)
        half = subtract_scaled(x, lr, u, out=grad)
        ahead = torch.sub(half, state.half, out=state.half).add_(x)
        net.mix(ahead, round=round, out=(x,)).wait()
        state.half.copy_(half)
