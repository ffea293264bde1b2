"""Decentralized SGD, without and with momentum."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction, check_switch
from gossamer.methods.contract import Facts, Method, Scalar, State, add_scaled_, decay_and_add_, subtract_scaled
from gossamer.network.contract import Network


@dataclass(frozen=True, eq=False)
class DSGD(Method):
    """Decentralized SGD: step, then average with the neighbours.

    X <- W (X - eta G)

    Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017.
    """

    name = "dsgd"
    facts = Facts(
        title="DSGD", citation="Lian et al., NeurIPS 2017", sends=1, preserves_mean=True, equals_sgd_alone=True
    )

    def step(self, state: State, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """X <- W (X - eta G)."""
        half = subtract_scaled(x, lr, grad, out=grad)
        net.mix(half, round=round, out=(x,)).wait()


@dataclass
class MomentumState(State):
    """The momentum of each node."""

    keeps = ("u",)

    u: Tensor


@dataclass(frozen=True, eq=False)
class DSGDm(Method):
    """Decentralized SGD with momentum: every node keeps its own.

    U <- beta U + G
    X <- W (X - eta U)             (nesterov: G + beta U instead of U)

    Different data make the nodes' momenta point apart, and the momentum amplifies the difference by 1/(1 - beta).
    Gao and Huang, "Periodic stochastic gradient descent with momentum for decentralized training", 2020.
    """

    name = "dsgdm"
    facts = Facts(
        title="DSGDm", citation="Gao and Huang, arXiv 2020", sends=1, preserves_mean=True, equals_sgd_alone=True
    )

    beta: Scalar = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_fraction("DSGDm", "beta", self.beta)
        check_switch("DSGDm", "nesterov", self.nesterov)

    def initial(self, x: Tensor, net: Network) -> MomentumState:
        """U = 0."""
        return MomentumState(u=torch.zeros_like(x))

    def step(self, state: MomentumState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """U <- beta U + G;  X <- W (X - eta U)."""
        u = decay_and_add_(state.u, self.beta, grad)
        direction = add_scaled_(grad, self.beta, u) if self.nesterov else u
        half = subtract_scaled(x, lr, direction, out=grad)
        net.mix(half, round=round, out=(x,)).wait()
