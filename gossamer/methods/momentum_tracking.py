"""Momentum Tracking and, with beta = 0, Gradient Tracking."""

from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from gossamer._common.checks import check_choice, check_fraction
from gossamer.methods.contract import Facts, Method, Scalar, decay_and_add_, subtract_scaled
from gossamer.methods.tracking import TrackingState
from gossamer.network.contract import Network


@dataclass(frozen=True, eq=False)
class MomentumTracking(Method):
    """Momentum Tracking: each node's momentum is corrected towards the average of all.

    U <- beta U + G                               (local momentum)
    X <- W X - eta (U - C)                        (move along the corrected momentum)
    C <- W (C - U) + U                            (the correction; X uses the old one)

    With Y = U_new - C, the corrected momentum that moves x, the same reads

    U <- beta U + G
    Y <- W Y + U - U_old                          (mean Y = mean U in every round)
    X <- W X - eta Y

    which is how it is computed, because [x ; y] can then travel during the next gradient. `init="theorem"` starts as
    Theorem 1 asks, u_i = c_i = (g_i - mean g)/(1 - beta) at the first batch, at the price of one all-reduce: the first
    y is then the exact average gradient. `init="zero"` starts from u = c = 0: the first y is the node's own gradient.

    Takezawa et al., "Momentum Tracking: momentum acceleration for decentralized deep learning on heterogeneous data",
    TMLR 2023. The rate does not depend on how different the nodes are, for any beta in [0, 1).
    """

    name = "momentum-tracking"
    facts = Facts(
        title="Momentum Tracking",
        citation="Takezawa et al., TMLR 2023",
        sends=2,
        starts_with_all_reduce=True,
        exact=True,
        exact_on_schedules=True,
        preserves_mean=True,
        equals_sgd_alone=True,
        tracks=True,
        overlaps=True,
    )

    beta: Scalar = 0.9
    init: Literal["theorem", "zero"] = "theorem"

    def __post_init__(self) -> None:
        check_fraction(self.facts.title, "beta", self.beta)
        check_choice(self.facts.title, "init", self.init, ("theorem", "zero"))
        if self.init == "zero":
            # The class declares what its defaults do; this instance is cheaper.
            object.__setattr__(self, "facts", replace(self.facts, starts_with_all_reduce=False))

    def initial(self, x: Tensor, net: Network) -> TrackingState:
        """U = 0 and Y = 0; Theorem 1's start needs the first gradient and is made in the first step."""
        return TrackingState.start(x)

    def step(self, state: TrackingState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """U <- beta U + G;  Y <- W Y + U - U_old;  X <- W X - eta Y."""
        wx, wy = state.mixed.wait()
        u = state.signal
        if state.is_first_step and self.init == "theorem":
            u.copy_(grad).sub_(net.average(grad, round=round)).div_(1 - self.beta)
        y = wy.sub_(u)  # W Y - U_old
        decay_and_add_(u, self.beta, grad)  # U <- beta U + G
        y.add_(u)  # Y <- W Y - U_old + U
        subtract_scaled(wx, lr, y, out=x)  # X <- W X - eta Y
        state.send(x, y, net, round + 1)


@dataclass(frozen=True, eq=False)
class GradientTracking(MomentumTracking):
    """Gradient Tracking: Momentum Tracking with beta = 0.

    X <- W X - eta (G - C)
    C <- W (C - G) + G

    or, with Y = G - C:  Y <- W Y + G - G_old;  X <- W X - eta Y. `init` as in Momentum Tracking.
    Di Lorenzo and Scutari, "NEXT", 2016; Nedic et al., SIAM J. Optim. 2017; Koloskova et al., NeurIPS 2021.
    """

    name = "gradient-tracking"
    facts = replace(
        MomentumTracking.facts,
        title="Gradient Tracking",
        citation="Di Lorenzo and Scutari, 2016; Nedic et al., SIAM J. Optim. 2017",
    )

    beta: Scalar = field(default=0.0, init=False, repr=False)
