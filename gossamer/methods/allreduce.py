"""The centralized baseline: every node applies the exact average gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction, check_switch
from gossamer.methods.contract import Facts, Method, Scalar, decay_and_add_, subtract_scaled
from gossamer.methods.dsgd import MomentumState
from gossamer.network.contract import Network


@dataclass
class CommonMomentumState(MomentumState):
    """The momentum, which is the same on every node."""

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """Nodes may have finished their last round alone, and nothing else would bring them together again.

        In float64, so that nodes whose float32 models are equal keep them to the bit.
        """
        for vector in (x, self.u):
            vector.copy_(net.average(vector.double(), round=round))


@dataclass(frozen=True, eq=False)
class AllReduceSGDm(Method):
    """SGD with momentum on the exact average gradient: what decentralized methods are measured against.

    U <- beta U + mean(G)
    X <- X - eta U                 (nesterov: mean(G) + beta U instead of U)

    It needs an all-reduce over all nodes in every round, and does not use the graph.
    """

    name = "all-reduce-sgdm"
    facts = Facts(
        title="All-reduce SGDm",
        citation="Polyak, 1964",
        sends="all-reduce",
        exact=True,
        exact_on_schedules=True,
        preserves_mean=True,
        equals_sgd_alone=True,
    )

    beta: Scalar = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_fraction("All-reduce SGDm", "beta", self.beta)
        check_switch("All-reduce SGDm", "nesterov", self.nesterov)

    def initial(self, x: Tensor, net: Network) -> CommonMomentumState:
        """U = 0."""
        return CommonMomentumState(u=torch.zeros_like(x))

    def step(self, state: CommonMomentumState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """U <- beta U + mean(G);  X <- X - eta U."""
        mean = net.average(grad, round=round)
        u = decay_and_add_(state.u, self.beta, mean)
        direction = torch.addcmul(mean, u, torch.as_tensor(self.beta, dtype=u.dtype)) if self.nesterov else u
        subtract_scaled(x, lr, direction, out=x)
