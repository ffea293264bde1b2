"""RelaySum: on a tree, relayed sums reach every node undiluted, those of its neighbours in the same round."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gossamer._common.checks import check_choice, check_fraction, check_switch
from gossamer.methods.contract import Facts, Method, Scalar, State, add_scaled_, decay_and_add_, subtract_scaled
from gossamer.network.contract import Network
from gossamer.topology import Needs

Fill = Literal["arrived", "own"]


@dataclass
class RelayState(State):
    """On every directed edge, the message that arrived last and how many nodes it sums over."""

    keeps: ClassVar[tuple[str, ...] | None] = ()  # relayed sums contain nodes that may have left

    messages: Tensor
    counts: Tensor


@dataclass(frozen=True, eq=False)
class RelaySum(Method):
    """RelaySum (RelaySGD): every node averages the half steps of all nodes, the older the farther away.

    Xh = X - eta G
    m_{i->j} = xh_i + sum of last round's m_{k->i} over the neighbours k of i other than j
    n_{i->j} = 1 + the same sum of counts
    x_i <- (xh_i + sum_j m_{j->i}) / (1 + sum_j n_{j->i})

    A neighbour's half step is of the same round, that of a node d edges away is d - 1 rounds old.
    Until the counts of all nodes have arrived, `fill="arrived"` divides by the count that has; `fill="own"` uses
    the node's own half step for those that are missing. What arrives from far away is old, so even identical nodes
    do not follow plain SGD step by step.
    Vogels et al., "RelaySum for decentralized deep learning on heterogeneous data", NeurIPS 2021.
    """

    name = "relaysum"
    facts = Facts(
        title="RelaySum",
        citation="Vogels et al., NeurIPS 2021",
        sends=1,
        needs=Needs(static=True, tree=True),
        exact=True,
    )

    fill: Fill = "arrived"

    def __post_init__(self) -> None:
        check_choice("RelaySum", "fill", self.fill, ("arrived", "own"))

    def initial(self, x: Tensor, net: Network) -> RelayState:
        """No message and no count on any edge."""
        return RelayState(*_silent(x, net))

    def step(self, state: RelayState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """Xh = X - eta G, then relay."""
        half = subtract_scaled(x, lr, grad, out=grad)
        _relay(state, half, x, self.fill, net, round)


@dataclass
class RelayMomentumState(RelayState):
    """The relayed messages, and the momentum of each node."""

    keeps = ("u",)

    u: Tensor


@dataclass(frozen=True, eq=False)
class RelaySumM(Method):
    """RelaySum with local momentum.

    U  <- beta U + G
    Xh = X - eta U                 (nesterov: G + beta U instead of U), then as RelaySum
    """

    name = "relaysum-m"
    facts = Facts(
        title="RelaySumM",
        citation="Vogels et al., NeurIPS 2021",
        sends=1,
        needs=Needs(static=True, tree=True),
        exact=True,
    )

    beta: Scalar = 0.9
    nesterov: bool = False
    fill: Fill = "arrived"

    def __post_init__(self) -> None:
        check_fraction("RelaySumM", "beta", self.beta)
        check_switch("RelaySumM", "nesterov", self.nesterov)
        check_choice("RelaySumM", "fill", self.fill, ("arrived", "own"))

    def initial(self, x: Tensor, net: Network) -> RelayMomentumState:
        """U = 0, no message and no count on any edge."""
        return RelayMomentumState(*_silent(x, net), u=torch.zeros_like(x))

    def step(self, state: RelayMomentumState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """U <- beta U + G;  Xh = X - eta U, then relay."""
        u = decay_and_add_(state.u, self.beta, grad)
        direction = add_scaled_(grad, self.beta, u) if self.nesterov else u
        half = subtract_scaled(x, lr, direction, out=grad)
        _relay(state, half, x, self.fill, net, round)


def _silent(x: Tensor, net: Network) -> tuple[Tensor, Tensor]:
    return net.spread(torch.zeros_like(x)), net.spread(torch.zeros_like(x[..., :1]))


def _relay(state: RelayState, half: Tensor, x: Tensor, fill: Fill, net: Network, round: int) -> None:
    """Send along each edge all that came from elsewhere, and set x to the average of all that has arrived."""
    messages = net.spread(half + net.collect(state.messages)).sub_(state.messages)
    counts = net.spread(1 + net.collect(state.counts)).sub_(state.counts)
    state.messages, state.counts = net.exchange(messages, counts, round=round).wait()
    total, arrived = half + net.collect(state.messages), 1 + net.collect(state.counts)
    if fill == "own":
        missing = net.n - arrived
        total, arrived = total + missing * half, arrived + missing
    torch.div(total, arrived, out=x)
