"""GTAdam: Adam on the tracked gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction, check_positive
from gossamer.methods.contract import Facts, Method, Scalar, blend_, subtract_scaled
from gossamer.methods.tracking import TrackingState
from gossamer.network.contract import Network


@dataclass
class AdamState(TrackingState):
    """Tracking, and Adam's two moments."""

    keeps = ("signal", "m", "v")

    m: Tensor
    v: Tensor


@dataclass(frozen=True, eq=False)
class GTAdam(Method):
    """GTAdam: the gradient is tracked, and Adam (without bias correction) turns it into a step.

    S  <- W S + G - G_prev                        (first round: S = G)
    M  <- b1 M + (1 - b1) S
    V  <- min(b2 V + (1 - b2) S*S, Gmax)          (Gmax off by default)
    X' = W X - eta M / sqrt(V + eps)

    Carnevale et al., "GTAdam: gradient tracking with adaptive momentum for distributed online optimization",
    IEEE TCNS 2022.
    """

    name = "gtadam"
    facts = Facts(title="GTAdam", citation="Carnevale et al., IEEE TCNS 2022", sends=2, tracks=True, overlaps=True)

    b1: Scalar = 0.9
    b2: Scalar = 0.999
    eps: float = 1e-8
    gmax: float | None = None

    def __post_init__(self) -> None:
        check_fraction("GTAdam", "b1", self.b1)
        check_fraction("GTAdam", "b2", self.b2)
        check_positive("GTAdam", "eps", self.eps)
        if self.gmax is not None:
            check_positive("GTAdam", "gmax", self.gmax)

    def initial(self, x: Tensor, net: Network) -> AdamState:
        """S = G_prev = 0 and M = V = 0."""
        return AdamState.start(x, m=torch.zeros_like(x), v=torch.zeros_like(x))

    def step(self, state: AdamState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """S <- W S + G - G_prev;  M, V as in Adam;  X <- W X - eta M / sqrt(V + eps)."""
        wx, ws = state.mixed.wait()
        s = ws.add_(grad).sub_(state.signal)
        state.signal.copy_(grad)
        blend_(state.m, self.b1, s)
        blend_(state.v, self.b2, torch.mul(s, s, out=grad))
        if self.gmax is not None:
            state.v.clamp_(max=self.gmax)
        direction = torch.add(state.v, self.eps, out=grad).rsqrt_().mul_(state.m)
        subtract_scaled(wx, lr, direction, out=x)
        state.send(x, s, net, round + 1)
