"""Several steps of a torch optimizer on every node between two exchanges: what `optim.Outer` is on real nodes."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from gossamer._common.checks import normalized, parameters, split
from gossamer.engine.node_models import NodeModels
from gossamer.errors import InputError, unknown

Inner = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
"""Makes the optimizer of one node's parameters."""

ELEMENTWISE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
"""Optimizers that treat every number by itself: one of them steps the models of all nodes at once."""


def by_name(spec: str) -> Inner:
    """The optimizer meant by a name with its parameters; its step size is set before every step.

    >>> by_name("sgd:momentum=0.9")([torch.zeros(1)]).param_groups[0]["momentum"]
    0.9
    """
    name, rest = split(spec)
    name = normalized(name)
    if name not in ELEMENTWISE:
        raise unknown("inner optimizer", name, ELEMENTWISE)
    make = ELEMENTWISE[name]
    given = parameters("inner optimizer", name, make, rest, given=("params", "lr"))

    def inner(tensors: Iterable[Tensor]) -> torch.optim.Optimizer:
        try:
            return make(tensors, lr=0.0, **given)
        except (ValueError, TypeError) as error:
            raise InputError(f"The inner optimizer '{spec}' cannot be made: {error}.") from None

    return inner


class LocalSteps:
    """The optimizers of all nodes, and where the models were at the last exchange."""

    def __init__(self, models: NodeModels, inner: str | Inner, every: int) -> None:
        self.every = every
        self._models, self._start = models, models.x.detach().clone()
        rows = [(models.x.detach(), models.grad)]
        if isinstance(inner, str):
            inner = by_name(inner)
        else:
            rows = list(zip(models.x.detach(), models.grad, strict=True))
        self._optimizers = []
        for x, grad in rows:
            parameters = [x] if x.dim() == 2 else [slot.view(x) for slot in models.layout]
            gradients = [grad] if x.dim() == 2 else [slot.view(grad) for slot in models.layout]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer = inner(parameters)
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise InputError(
                    f"inner must be a name such as 'adamw', or a function of a list of tensors that makes a torch "
                    f"optimizer, but it made a {type(optimizer).__name__}."
                )
            self._optimizers.append(optimizer)

    def step(self, lr: float) -> None:
        """One step of every node's optimizer with the present gradients."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()

    def turn_back(self) -> None:
        """The gradients become x_start - x_end, and the models are again where they were at the last exchange."""
        x = self._models.x
        torch.sub(self._start, x, out=self._models.grad)
        x.copy_(self._start)

    def begin(self) -> None:
        """The models have been exchanged: the next steps start here."""
        self._start.copy_(self._models.x)

    def rows(self) -> dict[str, Tensor]:
        """What the optimizer remembers of every node, one row each."""
        return {name: v for name, v in self._remembered().items() if isinstance(v, Tensor) and v.dim() == 2}

    def among(self, models: NodeModels, inner: str, rows: dict[str, Tensor]) -> "LocalSteps":
        """The same for other nodes, which have exchanged just now and whose rows these are."""
        some = LocalSteps(models, inner, self.every)
        remembered = {name: value for name, value in self._remembered().items() if name not in self.rows()} | rows
        if remembered:
            saved = self._optimizers[0].state_dict()
            some._optimizers[0].load_state_dict({**saved, "state": {0: remembered}})
        return some

    def _remembered(self) -> dict[str, Any]:
        return dict(self._optimizers[0].state_dict()["state"].get(0, {}))

    def state_dict(self) -> dict[str, Any]:
        """The optimizers' states, and the models of the last exchange."""
        return {"start": self._start, "inner": [optimizer.state_dict() for optimizer in self._optimizers]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._start.copy_(saved["start"])
        for optimizer, own in zip(self._optimizers, saved["inner"], strict=True):
            optimizer.load_state_dict(own)
