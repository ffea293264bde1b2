"""The twelve methods as optimizers. The formulas are in `gossamer.methods`; arguments are called as in torch.optim."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Unpack

from gossamer import methods
from gossamer.optim.contract import DecentralizedOptimizer, NetworkOptions


class DSGD(DecentralizedOptimizer):
    """Decentralized SGD: X <- W (X - lr G)."""

    method = methods.DSGD

    def __init__(
        self, params: Iterable[Any], lr: float, *, weight_decay: float = 0.0, **network: Unpack[NetworkOptions]
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay}, **network)


class _Momentum(DecentralizedOptimizer):
    """A method whose one hyper-parameter is the momentum."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}, **network)


class _Nesterov(DecentralizedOptimizer):
    """A method with momentum, Nesterov's on demand."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **network: Unpack[NetworkOptions],
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        super().__init__(params, defaults, **network)


class DSGDm(_Nesterov):
    """Decentralized SGD with local momentum: U <- momentum U + G;  X <- W (X - lr U)."""

    method = methods.DSGDm


class QGDSGDm(DecentralizedOptimizer):
    """Quasi-global momentum; `mu` is the weight of the old momentum, by default `momentum`."""

    method = methods.QGDSGDm

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        mu: float | None = None,
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "mu": mu}, **network)


class DecentLaM(_Momentum):
    """DecentLaM: momentum on the mixed descent direction. Needs a static graph."""

    method = methods.DecentLaM


class GradientTracking(DecentralizedOptimizer):
    """Gradient Tracking: Momentum Tracking with momentum 0. `init` is "theorem" (one all-reduce) or "zero"."""

    method = methods.GradientTracking

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        weight_decay: float = 0.0,
        init: Literal["theorem", "zero"] = "theorem",
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "init": init}, **network)


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
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        init: Literal["theorem", "zero"] = "theorem",
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(
            params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "init": init}, **network
        )


class ABm(_Momentum):
    """ABm: gradient tracking with a heavy ball on x. Needs a static graph."""

    method = methods.ABm


class GTAdam(DecentralizedOptimizer):
    """GTAdam: Adam (without bias correction) on the tracked gradient; `gmax` bounds its second moment."""

    method = methods.GTAdam
    translation: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        weight_decay: float = 0.0,
        gmax: float | None = None,
        **network: Unpack[NetworkOptions],
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps, "gmax": gmax}
        super().__init__(params, defaults, **network)

    def method_options(self, group: dict[str, Any]) -> dict[str, Any]:
        """`betas` become b1 and b2."""
        b1, b2 = group["betas"]
        return {"b1": b1, "b2": b2, "eps": group["eps"], "gmax": group["gmax"]}


class D2(DecentralizedOptimizer):
    """D^2. Needs a static symmetric graph whose eigenvalues lie above -1/3: even rings take weights="lazy"."""

    method = methods.D2

    def __init__(
        self, params: Iterable[Any], lr: float, *, weight_decay: float = 0.0, **network: Unpack[NetworkOptions]
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay}, **network)


class RelaySum(DecentralizedOptimizer):
    """RelaySum (RelaySGD). Needs a static tree."""

    method = methods.RelaySum

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        weight_decay: float = 0.0,
        fill: Literal["arrived", "own"] = "arrived",
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "fill": fill}, **network)


class RelaySumM(DecentralizedOptimizer):
    """RelaySum with local momentum. Needs a static tree."""

    method = methods.RelaySumM

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        fill: Literal["arrived", "own"] = "arrived",
        **network: Unpack[NetworkOptions],
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "fill": fill}
        super().__init__(params, defaults, **network)


class AllReduceSGDm(_Nesterov):
    """SGD with momentum on the exact average gradient: the centralized yardstick. The graph plays no part."""

    method = methods.AllReduceSGDm
