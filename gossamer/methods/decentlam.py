"""DecentLaM: momentum on the mixed, not the local, descent direction."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction
from gossamer.methods.contract import Facts, Method, Scalar, State, decay_and_add_, subtract_scaled
from gossamer.network.contract import Network
from gossamer.topology import Needs


@dataclass
class DecentLaMState(State):
    """The momentum of each node, and a buffer for the mixed model."""

    keeps = ("u",)

    u: Tensor
    mixed: Tensor


@dataclass(frozen=True, eq=False)
class DecentLaM(Method):
    """DecentLaM: the momentum accumulates how far mixing and the gradient together move the model.

    Ghat = (X - W (X - eta G)) / eta
    U   <- beta U + Ghat
    X   <- X - eta U

    The average runs over the neighbours and the node itself. Where eta = 0: X <- W X, and U stays as it is. In float32
    the division by eta costs about eps |x| / eta of accuracy.
    Yuan et al., "DecentLaM: decentralized momentum SGD for large-batch deep training", ICCV 2021.
    """

    name = "decentlam"
    facts = Facts(
        title="DecentLaM",
        citation="Yuan et al., ICCV 2021",
        sends=1,
        needs=Needs(static=True),
        preserves_mean=True,
        equals_sgd_alone=True,
    )

    beta: Scalar = 0.9

    def __post_init__(self) -> None:
        check_fraction("DecentLaM", "beta", self.beta)

    def initial(self, x: Tensor, net: Network) -> DecentLaMState:
        """U = 0."""
        return DecentLaMState(u=torch.zeros_like(x), mixed=torch.zeros_like(x))

    def step(self, state: DecentLaMState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """Ghat = (X - W (X - eta G))/eta;  U <- beta U + Ghat;  X <- X - eta U."""
        half = subtract_scaled(x, lr, grad, out=grad)
        (mixed,) = net.mix(half, round=round, out=(state.mixed,)).wait()
        if isinstance(lr, Tensor):
            still = lr == 0
            u = self.beta * state.u + (x - mixed) / lr
            state.u.copy_(torch.where(still, state.u, u))
            x.copy_(torch.where(still, mixed, x - lr * state.u))
        elif lr == 0:
            x.copy_(mixed)
        else:
            ghat = torch.sub(x, mixed, out=grad).div_(lr)
            u = decay_and_add_(state.u, self.beta, ghat)
            subtract_scaled(x, lr, u, out=x)
