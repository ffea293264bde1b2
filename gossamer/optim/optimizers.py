"""The methods as optimizers. The formulas are in `gossamer.methods`; arguments are called as in torch.optim.

Besides its hyper-parameters every optimizer takes the `Options` that all share: weight_decay, topology, node, ...
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, TypedDict, Unpack

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from gossamer import methods
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.network.sites import Sites
from gossamer.optim.decentralized import DecentralizedOptimizer
from gossamer.topology import Topology

Params = Iterable[Any]


class Options(TypedDict, total=False):
    """What every optimizer takes besides the hyper-parameters of its method.

    >>> shared: Options = {"topology": "ring", "weight_decay": 1e-3}
    >>> DSGD(nn.Linear(2, 1).parameters(), lr=0.05, **shared).param_groups[0]["weight_decay"]
    0.001
    """

    weight_decay: float
    """L2: weight_decay * x is added to the gradient, before anything else; by default 0."""
    decoupled: bool
    """As in AdamW, x <- (1 - lr * weight_decay) x before the step, and nothing is added to the gradient."""
    topology: str | Topology | None
    """Who talks to whom: a name such as "ring", a `Topology`, or a schedule. One process needs none."""
    group: dist.ProcessGroup | DeviceMesh | None
    """The processes that are nodes: a process group or one dimension of a DeviceMesh; by default all."""
    node: int | str | None
    """This process's persistent node id, a number or a label of the topology; by default GOSSAMER_NODE, or its rank."""
    node_weight: float | None
    """The share of this node in the common objective, for instance the number of its examples; by default equal."""
    model: nn.Module | None
    """The model, to check already here and not only in the first step that no wrapper averages over several nodes."""
    equal_gradients: Literal["refuse", "allow"]
    """What to do if DDP or FSDP spans several nodes or all first gradients are equal; by default "refuse" to start."""
    overlap: bool
    """Whether the message of a tracking method travels during the next gradient (same trajectory); by default so."""
    wire: Literal["bf16"] | None
    """bf16 halves the messages and keeps the mean; by default vectors travel as they are."""
    timeout: float
    """Seconds until a silent peer is given up; by default half an hour."""
    nonfinite: Literal["stop", "skip"]
    """What a NaN or Inf in the gradient does: end the run on all nodes (default), or count that round as gradient 0."""
    sites: Sites | None
    """Sites that come and go, instead of processes that torchrun has started: see `gossamer.Sites`."""


class _Plain(DecentralizedOptimizer):
    """A method without hyper-parameters."""

    def __init__(self, params: Params, lr: float, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, **options)


class _Momentum(DecentralizedOptimizer):
    """A method whose one hyper-parameter is the momentum."""

    def __init__(self, params: Params, lr: float, momentum: float = 0.9, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, {"momentum": momentum}, **options)


class _Nesterov(DecentralizedOptimizer):
    """A method with momentum, Nesterov's on demand."""

    def __init__(
        self, params: Params, lr: float, momentum: float = 0.9, *, nesterov: bool = False, **options: Unpack[Options]
    ) -> None:
        super().__init__(params, lr, {"momentum": momentum, "nesterov": nesterov}, **options)


class DSGD(_Plain):
    """Decentralized SGD: X <- W (X - lr G).

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = DSGD(model.parameters(), lr=0.05, weight_decay=1e-3, topology="ring")
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    """

    method = methods.DSGD


class DSGDm(_Nesterov):
    """Decentralized SGD with local momentum: U <- momentum U + G;  X <- W (X - lr U)."""

    method = methods.DSGDm


class QGDSGDm(DecentralizedOptimizer):
    """Quasi-global momentum; `mu` is the weight of the old momentum, by default `momentum`."""

    method = methods.QGDSGDm

    def __init__(
        self, params: Params, lr: float, momentum: float = 0.9, *, mu: float | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(params, lr, {"momentum": momentum, "mu": mu}, **options)


class DecentLaM(_Momentum):
    """DecentLaM: momentum on the mixed descent direction. Needs a static graph."""

    method = methods.DecentLaM


class GradientTracking(DecentralizedOptimizer):
    """Gradient Tracking: Momentum Tracking with momentum 0. `init` is "theorem" (one all-reduce) or "zero"."""

    method = methods.GradientTracking

    def __init__(
        self, params: Params, lr: float, *, init: Literal["theorem", "zero"] = "theorem", **options: Unpack[Options]
    ) -> None:
        super().__init__(params, lr, {"init": init}, **options)


class MomentumTracking(DecentralizedOptimizer):
    """Momentum Tracking: U <- momentum U + G;  Y <- W Y + U - U_old;  X <- W X - lr Y.

    `init` is "theorem" (Theorem 1's start, one all-reduce in the first step) or "zero" (none).

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = MomentumTracking(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, topology="ring")
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    """

    method = methods.MomentumTracking

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.9,
        *,
        init: Literal["theorem", "zero"] = "theorem",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, {"momentum": momentum, "init": init}, **options)


class ABm(_Momentum):
    """ABm: gradient tracking with a heavy ball on x. Needs a static graph."""

    method = methods.ABm


class GTAdam(DecentralizedOptimizer):
    """GTAdam: Adam (without bias correction) on the tracked gradient; `gmax` bounds its second moment.

    With `decoupled=True` the weight decay is AdamW's.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = GTAdam(model.parameters(), lr=1e-3, weight_decay=0.01, decoupled=True, topology="ring")
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    """

    method = methods.GTAdam

    def __init__(
        self,
        params: Params,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        gmax: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, {"betas": betas, "eps": eps, "gmax": gmax}, **options)

    def method_options(self, group: dict[str, Any]) -> dict[str, Any]:
        """`betas` become b1 and b2."""
        b1, b2 = group["betas"]
        return {"b1": b1, "b2": b2, "eps": group["eps"], "gmax": group["gmax"]}


class D2(_Plain):
    """D^2. Needs a static symmetric graph whose eigenvalues lie above -1/3: even rings take weights="lazy"."""

    method = methods.D2


class RelaySum(DecentralizedOptimizer):
    """RelaySum (RelaySGD). Needs a static tree."""

    method = methods.RelaySum

    def __init__(
        self, params: Params, lr: float, *, fill: Literal["arrived", "own"] = "arrived", **options: Unpack[Options]
    ) -> None:
        super().__init__(params, lr, {"fill": fill}, **options)


class RelaySumM(DecentralizedOptimizer):
    """RelaySum with local momentum. Needs a static tree."""

    method = methods.RelaySumM

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.9,
        *,
        nesterov: bool = False,
        fill: Literal["arrived", "own"] = "arrived",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, {"momentum": momentum, "nesterov": nesterov, "fill": fill}, **options)


class AllReduceSGDm(_Nesterov):
    """SGD with momentum on the exact average gradient: the centralized baseline. The graph is not used."""

    method = methods.AllReduceSGDm


class EDM(_Momentum):
    """EDM: D^2 with momentum. Needs what D^2 needs: even rings take weights="lazy"."""

    method = methods.EDM


class _Local(DecentralizedOptimizer):
    """A method that exchanges in every `every`-th step and is silent in between."""

    def __init__(
        self, params: Params, lr: float, *, every: int = 5, momentum: float = 0.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(params, lr, {"every": every, "momentum": momentum}, **options)


class LED(_Local):
    """LED: `every` local steps, then an exchange of one vector. Needs what D^2 needs: lazy weights on even rings."""

    method = methods.LED


class KGT(_Local):
    """K-GT: `every` local steps with a corrected gradient, then an exchange of two vectors."""

    method = methods.KGT


class ChocoSGD(DecentralizedOptimizer):
    """CHOCO-SGD: DSGD whose messages go through the compressor `compress`. Needs a static symmetric graph."""

    method = methods.ChocoSGD

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, {"compress": compress, "gamma": gamma}, **options)


class ChocoSGDm(DecentralizedOptimizer):
    """CHOCO-SGDm: DSGDm whose messages go through the compressor `compress`. Needs a static symmetric graph."""

    method = methods.ChocoSGDm

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.9,
        *,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, {"momentum": momentum, "compress": compress, "gamma": gamma}, **options)


class BEER(DecentralizedOptimizer):
    """BEER: Gradient Tracking whose messages go through the compressor `compress`. Needs a static symmetric graph."""

    method = methods.BEER

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
        init: Literal["theorem", "zero"] = "theorem",
        predict: bool = False,
        **options: Unpack[Options],
    ) -> None:
        hyperparameters = {"compress": compress, "gamma": gamma, "init": init, "predict": predict}
        super().__init__(params, lr, hyperparameters, **options)


class MoTEF(DecentralizedOptimizer):
    """MoTEF: Momentum Tracking whose messages go through the compressor `compress`. Needs a static symmetric graph.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = MoTEF(model.parameters(), lr=0.05, compress="quantize:bits=4", topology="ring")
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    """

    method = methods.MoTEF

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.9,
        *,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
        init: Literal["theorem", "zero"] = "theorem",
        predict: bool = False,
        **options: Unpack[Options],
    ) -> None:
        hyperparameters = {"momentum": momentum, "compress": compress, "gamma": gamma, "init": init, "predict": predict}
        super().__init__(params, lr, hyperparameters, **options)


def optimizer_of(method: Method, params: Params, lr: float, **options: Unpack[Options]) -> DecentralizedOptimizer:
    """The optimizer of any method, your own included: the same object that `gossamer.simulate` takes.

    Hyper-parameters keep the names that the method gives them, also in the parameter groups; `lr`, `weight_decay`,
    `decoupled`, `params` and `round` are taken there.

    >>> import torch
    >>> optimizer = optimizer_of(methods.DSGDm(beta=0.8), torch.nn.Linear(2, 1).parameters(), lr=0.05, topology="ring")
    >>> optimizer.param_groups[0]["beta"]
    0.8
    """
    taken = {"lr", "weight_decay", "decoupled", "params", "round"} & method.hyperparameters.keys()
    if taken:
        raise InputError(
            f"{method.facts.title} has a hyper-parameter called {', '.join(sorted(taken))}, which means something else "
            f"in an optimizer; give it another name."
        )

    class Own(DecentralizedOptimizer):
        __doc__ = method.__doc__
        translation: ClassVar[dict[str, str]] = {}

    Own.method = type(method)
    Own.__name__ = Own.__qualname__ = type(method).__name__
    return Own(params, lr, method.hyperparameters, **options)
