"""MoTEF, which is Momentum Tracking with compressed messages, and BEER, which is Gradient Tracking with them."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gossamer._common.checks import check_choice, check_fraction, check_switch
from gossamer.errors import InputError
from gossamer.methods.compressed import (
    REBUILD,
    TROUBLE,
    check_gamma,
    consensus_step,
    difference,
    pull_,
    rebuild,
    spec_of,
    wide_zeros,
)
from gossamer.methods.contract import Facts, Method, Scalar, State, add_scaled_, decay_and_add_
from gossamer.methods.tracking import FirstMessage
from gossamer.network.contract import Network, Pending, Ready
from gossamer.topology import Needs


@dataclass
class MoTEFState(State):
    """The momentum u, its tracked average v, and of x and v what the neighbours know, h and y, with their gaps."""

    keeps: ClassVar[tuple[str, ...] | None] = ("u", "h")
    sends_x: ClassVar[bool] = False

    u: Tensor
    v: Tensor
    h: Tensor
    y: Tensor
    gap_h: Tensor
    gap_y: Tensor
    turn: int
    mixed: Pending
    """W Qx and W Qy, under way: the gaps are W H - H and W Y - Y when they have been added."""

    @property
    def is_first_step(self) -> bool:
        """Whether no step has been made and no state loaded."""
        return isinstance(self.mixed, FirstMessage)

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """V <- U, of which the neighbours know nothing yet: mean V = mean U. H stays, and W H is computed again."""
        self.v.copy_(self.u)
        rebuild(net, round, (self.h, self.gap_h))
        self.mixed = Ready(*self.mixed.wait())

    def known(self) -> list[tuple[Tensor, Tensor]]:
        """(H, W H - H) and (Y, W Y - Y)."""
        wqx, wqy = self.mixed.wait()
        return [(self.h, self.gap_h + wqx), (self.y, self.gap_y + wqy)]

    def tracked(self) -> Tensor:
        """V."""
        return self.v

    def correction(self) -> Tensor:
        """U - V, with mean zero over the nodes."""
        return self.u - self.v


@dataclass(frozen=True, eq=False)
class MoTEF(Method):
    """MoTEF: Momentum Tracking with compressed messages.

    U' = beta U + G                               (local momentum)
    V  <- V + gamma (W Y - Y) + U' - U            (mean V = mean U in every round)
    X  <- X + gamma (W H - H) - eta V
    Qx = C(X - H);   Qy = C(V - Y)                (what the neighbours do not know yet, compressed)
    H  <- H + Qx;    Y  <- Y + Qy

    Only Qx and Qy travel, and they do so during the next gradient. With the identity as compressor and gamma = 1 it is
    Momentum Tracking, written with the same heavy ball U: step sizes mean the same. `compress` names the compressor C;
    `gamma` is the consensus step, by default a large one at which what the compressor loses is sure to die out; `init`
    as in Momentum Tracking.

    `predict=True` is not in the paper: before Qx is made, everybody takes the step that it knows of, H <- H - eta Y.
    Messages then only say how far X is from there, which makes a difference with 1 or 2 bits per number. It needs a
    compressor that keeps something of every number: quantization.

    Islamov, Gao and Stich, "Towards faster decentralized stochastic optimization with communication compression", ICLR
    2025.
    """

    name = "motef"
    facts = Facts(
        title="MoTEF",
        citation="Islamov, Gao and Stich, ICLR 2025",
        sends=2,
        compresses=True,
        uncompressed="momentum-tracking",
        starts_with_all_reduce=True,
        needs=Needs(static=True, symmetric=True, trouble=TROUBLE),
        exact=True,
        preserves_mean=True,
        equals_sgd_alone=True,
        tracks=True,
        overlaps=True,
    )

    beta: Scalar = 0.9
    compress: str = "quantize:bits=4"
    gamma: Scalar | None = None
    init: Literal["theorem", "zero"] = "theorem"
    predict: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.facts.title, "beta", self.beta)
        check_switch(self.facts.title, "predict", self.predict)
        check_choice(self.facts.title, "init", self.init, ("theorem", "zero"))
        check_gamma(self.facts.title, self.gamma)
        object.__setattr__(self, "compress", spec_of(self.compress))
        if self.predict and not (self.compressor.spreads or self.compressor.name == "identity"):
            raise InputError(
                f"{self.facts.title} predicts steps only with quantization, but compress is {self.compress!r}: it "
                "leaves out whole numbers of the momentum, with which predicted steps can diverge; take "
                "compress='quantize:bits=1', or leave predict out."
            )
        if self.init == "zero":
            # The class declares what its defaults do; this instance is cheaper.
            object.__setattr__(self, "facts", replace(self.facts, starts_with_all_reduce=False))

    def initial(self, x: Tensor, net: Network) -> MoTEFState:
        """U = V = Y = 0, and H = X on all nodes alike."""
        u, v, y = (torch.zeros_like(x) for _ in range(3))
        gap_h, gap_y, wqx, wqy = (wide_zeros(x) for _ in range(4))
        return MoTEFState(u, v, x.clone(), y, gap_h, gap_y, 0, FirstMessage(wqx, wqy))

    def step(self, state: MoTEFState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """V <- V + gamma (W Y - Y) + U' - U;  X <- X + gamma (W H - H) - eta V;  send C(X - H) and C(V - Y)."""
        u, v, h, y = state.u, state.v, state.h, state.y
        wqx, wqy = state.mixed.wait()
        gap_h, gap_y = state.gap_h.add_(wqx), state.gap_y.add_(wqy)
        if state.is_first_step and self.init == "theorem":
            u.copy_(grad).sub_(net.average(grad, round=round)).div_(1 - self.beta)
        gamma = consensus_step(self, net, x.shape[-1])
        pull_(v, gamma, gap_y).sub_(u)  # V + gamma (W Y - Y) - U
        v.add_(decay_and_add_(u, self.beta, grad))  # ... + U'
        add_scaled_(pull_(x, gamma, gap_h), -lr, v)  # X + gamma (W H - H) - eta V
        if self.predict:
            add_scaled_(h, -lr, y)
            add_scaled_(gap_h, -lr, gap_y)
        qx = difference(x, h, gap_h, self.compressor, state.turn)
        qy = difference(v, y, gap_y, self.compressor, state.turn)
        state.turn += 1
        if state.turn % REBUILD:
            state.mixed = net.mix(qx, qy, round=round + 1, out=(wqx, wqy))
        else:
            rebuild(net, round + 1, (h, gap_h), (y, gap_y))
            state.mixed = Ready(wqx.zero_(), wqy.zero_())


@dataclass(frozen=True, eq=False)
class BEER(MoTEF):
    """BEER: Gradient Tracking with compressed messages, which is MoTEF with beta = 0.

    V  <- V + gamma (W Y - Y) + G - G_old         (mean V = mean G in every round)
    X  <- X + gamma (W H - H) - eta V
    H  <- H + C(X - H);   Y <- Y + C(V - Y)

    `compress`, `gamma`, `init` and `predict` as in MoTEF.
    Zhao et al., "BEER: fast O(1/T) rate for decentralized nonconvex optimization with communication compression",
    NeurIPS 2022.
    """

    name = "beer"
    facts = replace(MoTEF.facts, title="BEER", citation="Zhao et al., NeurIPS 2022", uncompressed="gradient-tracking")

    beta: Scalar = field(default=0.0, init=False, repr=False)
