"""Quasi-global momentum: the momentum follows the mixed model instead of the local gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction
from gossamer.methods.contract import Facts, Method, Scalar, State, add_scaled_, blend_, subtract_scaled
from gossamer.network.contract import Network


@dataclass
class QuasiGlobalState(State):
    """The quasi-global momentum, and a buffer for the mixed model."""

    keeps = ("m",)

    m: Tensor
    mixed: Tensor


@dataclass(frozen=True, eq=False)
class QGDSGDm(Method):
    """Quasi-global momentum: each node learns the common direction from how its mixed model moved.

    U  = beta M + G
    X' = W (X - eta U)
    M <- mu M + (1 - mu) (X - X') / eta         (mu = beta unless given)
    X <- X'

    Where eta = 0: X <- W X, and M stays as it is.
    Lin et al., "Quasi-global momentum: accelerating decentralized deep learning on heterogeneous data", ICML 2021.
    """

    name = "qg-dsgdm"
    facts = Facts(title="QG-DSGDm", citation="Lin et al., ICML 2021", sends=1)

    beta: Scalar = 0.9
    mu: Scalar | None = None

    def __post_init__(self) -> None:
        check_fraction("QG-DSGDm", "beta", self.beta)
        if self.mu is not None:
            check_fraction("QG-DSGDm", "mu", self.mu)

    def initial(self, x: Tensor, net: Network) -> QuasiGlobalState:
        """M = 0."""
        return QuasiGlobalState(m=torch.zeros_like(x), mixed=torch.zeros_like(x))

    def step(self, state: QuasiGlobalState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """U = beta M + G;  X' = W (X - eta U);  M <- mu M + (1 - mu) (X - X')/eta;  X <- X'."""
        mu = self.beta if self.mu is None else self.mu
        u = add_scaled_(grad, self.beta, state.m)
        half = subtract_scaled(x, lr, u, out=grad)
        (mixed,) = net.mix(half, round=round, out=(state.mixed,)).wait()
        moved = x.sub_(mixed)
        if isinstance(lr, Tensor):
            state.m.copy_(torch.where(lr == 0, state.m, mu * state.m + (1 - mu) * moved / lr))
        elif lr != 0:
            blend_(state.m, mu, moved.div_(lr))
        x.copy_(mixed)
