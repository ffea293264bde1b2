"""CHOCO-SGD: decentralized SGD with compressed messages, without and with momentum."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from gossamer._common.checks import check_fraction
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
from gossamer.network.contract import Network
from gossamer.topology import Needs


@dataclass
class ChocoState(State):
    """The momentum u, and of x what the neighbours know: h, with gap = W h - h."""

    keeps: ClassVar[tuple[str, ...] | None] = ("u", "h")

    u: Tensor
    h: Tensor
    gap: Tensor
    turn: int

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """H stays, and W H is computed again."""
        rebuild(net, round, (self.h, self.gap))

    def known(self) -> list[tuple[Tensor, Tensor]]:
        """(H, W H - H)."""
        return [(self.h, self.gap)]


@dataclass(frozen=True, eq=False)
class ChocoSGDm(Method):
    """CHOCO-SGDm: DSGDm with compressed messages.

    U <- beta U + G
    X <- X - eta U
    Q = C(X - H);   H <- H + Q                    (what the neighbours do not know yet, compressed)
    X <- X + gamma (W H - H)

    Only Q travels. With the identity as compressor and gamma = 1 this is DSGDm, and like DSGDm it does not correct for
    different data. `compress` names the compressor C; `gamma` is the consensus step, by default a large one at
    which what the compressor loses is sure to die out.

    Koloskova, Stich and Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication", ICML 2019; with momentum: Koloskova et al., ICLR 2020.
    """

    name = "choco-sgdm"
    facts = Facts(
        title="CHOCO-SGDm",
        citation="Koloskova et al., ICLR 2020",
        sends=1,
        compresses=True,
        uncompressed="dsgdm",
        needs=Needs(static=True, symmetric=True, trouble=TROUBLE),
        preserves_mean=True,
        equals_sgd_alone=True,
    )

    beta: Scalar = 0.9
    compress: str = "quantize:bits=4"
    gamma: Scalar | None = None

    def __post_init__(self) -> None:
        check_fraction(self.facts.title, "beta", self.beta)
        check_gamma(self.facts.title, self.gamma)
        object.__setattr__(self, "compress", spec_of(self.compress))

    def initial(self, x: Tensor, net: Network) -> ChocoState:
        """U = 0, and H = X on all nodes alike."""
        return ChocoState(torch.zeros_like(x), x.clone(), wide_zeros(x), 0)

    def step(self, state: ChocoState, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """X <- X - eta U;  H <- H + C(X - H);  X <- X + gamma (W H - H)."""
        add_scaled_(x, -lr, decay_and_add_(state.u, self.beta, grad))
        q = difference(x, state.h, state.gap, self.compressor, state.turn)
        state.turn += 1
        if state.turn % REBUILD:
            state.gap.add_(*net.mix(q, round=round, out=(torch.empty_like(state.gap),)).wait())
        else:
            rebuild(net, round, (state.h, state.gap))
        pull_(x, consensus_step(self, net, x.shape[-1]), state.gap)


@dataclass(frozen=True, eq=False)
class ChocoSGD(ChocoSGDm):
    """CHOCO-SGD: DSGD with compressed messages, which is CHOCO-SGDm with beta = 0.

    X <- X - eta G
    H <- H + C(X - H)
    X <- X + gamma (W H - H)

    `compress` and `gamma` as in CHOCO-SGDm.
    Koloskova, Stich and Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication", ICML 2019.
    """

    name = "choco-sgd"
    facts = replace(
        ChocoSGDm.facts, title="CHOCO-SGD", citation="Koloskova, Stich and Jaggi, ICML 2019", uncompressed="dsgd"
    )

    beta: Scalar = field(default=0.0, init=False, repr=False)
