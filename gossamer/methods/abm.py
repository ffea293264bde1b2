"""ABm: gradient tracking with a heavy ball on the model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction
from gossamer.methods.contract import Facts, Method, Scalar, add_scaled_, subtract_scaled
from gossamer.methods.tracking import TrackingState
from gossamer.network.contract import Network
from gossamer.topology import Needs


@dataclass
class HeavyBallState(TrackingState):
    """Tracking, and the last step of x."""

    keeps = ("signal", "velocity")

    velocity: Tensor


@dataclass(frozen=True, eq=False)
class ABm(Method):
    """ABm: the gradient is tracked, the momentum is a heavy ball on x.

    S  <- W S + G - G_prev                        (first round: S = G)
    X' = W X - eta S + beta (X - X_prev)

    Xin and Khan, "Distributed heavy-ball: a generalization and acceleration of first-order methods with gradient
    tracking", IEEE TAC 2020.
    """

    name = "abm"
    facts = Facts(
        title="ABm",
        citation="Xin and Khan, IEEE TAC 2020",
        sends=2,
        needs=Needs(static=True),
        exact=True,
        tracks=True,
        overlaps=True,
    )

    beta: Scalar = 0.9

    def __post_init__(self) -> None:
        check_fraction("ABm", "beta", self.beta)

    def initial(self, x: Tensor, net: Network) -> HeavyBallState:
        """S = G_prev = 0 and X_prev = X."""
        return HeavyBallState.start(x, velocity=torch.zeros_like(x))

    def step(self, state: HeavyBallState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """S <- W S + G - G_prev;  X <- W X - eta S + beta (X - X_prev)."""
        wx, ws = state.mixed.wait()
        s = ws.add_(grad).sub_(state.signal)
        state.signal.copy_(grad)
        subtract_scaled(wx, lr, s, out=wx)
        add_scaled_(wx, self.beta, state.velocity)
        torch.sub(wx, x, out=state.velocity)
        x.copy_(wx)
        state.send(x, s, net, round + 1)
