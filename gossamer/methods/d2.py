"""D^2: the difference of successive steps cancels what the nodes disagree on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.methods.contract import Facts, Method, Needs, Scalar, State, subtract_scaled
from gossamer.network.contract import Network


@dataclass
class D2State(State):
    """The half step of the last round, H = X - eta G, with the step size of its own round."""

    keeps = ()  # mean H = mean X holds among all nodes only; H = X, as before the first round, holds among any

    half: Tensor

    def shrink(self, x: Tensor, factor: Scalar) -> None:
        """The decay belongs into the half step alone: X + (factor X - eta G) - H_prev."""
        self.half.sub_(x)
        super().shrink(x, factor)
        self.half.add_(x)


@dataclass(frozen=True, eq=False)
class D2(Method):
    """D^2: decentralized training over decentralized data.

    round 0:  X' = W (X - eta G)
    later:    X' = W (2 X - X_prev - eta G + eta_prev G_prev)

    With the half step H = X - eta G this is X' = W (X + H - H_prev), where H_prev = X before the first round. Each H
    carries the step size of its own round, so that a change of step size leaves no drift behind. X + H - H_prev
    accumulates rounding: about 5e-2 after 20,000 rounds in float32, so use float64 for long exact runs.
    Tang et al., "D^2: decentralized training over decentralized data", ICML 2018.

    >>> from gossamer import topology
    >>> D2().check(topology.ring(8, weights="lazy"))
    """

    name = "d2"
    facts = Facts(
        title="D^2",
        citation="Tang et al., ICML 2018",
        sends=1,
        needs=Needs(static=True, symmetric=True, smallest_eigenvalue=-1 / 3),
        exact=True,
        preserves_mean=True,
        equals_sgd_alone=True,
    )

    def initial(self, x: Tensor, net: Network) -> D2State:
        """H_prev = X."""
        return D2State(half=x.clone())

    def step(self, state: D2State, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """H = X - eta G;  X <- W (X + H - H_prev);  H_prev <- H."""
        half = subtract_scaled(x, lr, grad, out=grad)
        ahead = torch.sub(half, state.half, out=state.half).add_(x)
        net.mix(ahead, round=round, out=(x,)).wait()
        state.half.copy_(half)
