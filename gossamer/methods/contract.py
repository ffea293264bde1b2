"""The contract every method fulfils, and the registry of those that do."""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from gossamer._common import specs
from gossamer.errors import InputError, unknown
from gossamer.methods.arithmetic import Scalar
from gossamer.methods.facts import Facts
from gossamer.network.contract import Network, Pending, Ready
from gossamer.topology import Topology


@dataclasses.dataclass
class State:
    """What a method remembers between rounds: a dataclass of tensors, numbers and pending messages.

    >>> import torch
    >>> @dataclasses.dataclass
    ... class Momentum(State):
    ...     u: Tensor
    >>> Momentum(torch.zeros(2)).tensors()
    {'u': tensor([0., 0.])}
    """

    keeps: ClassVar[tuple[str, ...] | None] = None
    """The vectors that stay true when nodes leave or join; None: nothing is known, and the method starts anew."""

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """Go on among other nodes: what `keeps` names has been taken over, all else is as `initial` made it.

        The network may be used: all nodes do this in the same round, which has not begun.
        """

    def tensors(self) -> dict[str, Any]:
        """Everything in the state as plain tensors and numbers. Messages under way are waited for first."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: v.wait() if isinstance(v, Pending) else v for k, v in values.items()}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what `tensors` gave, in place."""
        if set(saved) != {f.name for f in dataclasses.fields(self)}:
            raise InputError(
                f"The saved state holds {sorted(saved)}, but this method keeps "
                f"{sorted(f.name for f in dataclasses.fields(self))}; it was saved by another method or version."
            )
        here = self.tensors()
        for name, value in saved.items():
            if _shapes(value) != _shapes(here[name]):
                raise InputError(
                    f"The saved state's '{name}' has the shape {_shapes(value)}, but this run needs "
                    f"{_shapes(here[name])}; it was saved by a run with another model or other nodes."
                )
        for name, value in saved.items():
            mine = getattr(self, name)
            if isinstance(mine, Pending):
                for old, new in zip(mine.wait(), value, strict=True):
                    old.copy_(new)
                setattr(self, name, Ready(*mine.wait()))
            elif isinstance(mine, Tensor):
                mine.copy_(value)
            else:
                setattr(self, name, value)


class Method(ABC):
    """An update rule: what each node computes in a round and what it sends.

    Write the rule once, with elementwise operations and the network's verbs, and it runs on a stack of all nodes [N, d]
    and on one node's own vector [d] alike. A subclass with a `name` is found by `gossamer.methods.get(name)`.

    >>> class Local(Method):
    ...     name = "local-sgd-without-communication"
    ...     facts = Facts(title="Local SGD", sends=0)
    ...
    ...     def step(self, state, x, grad, lr, net, round):
    ...         x.sub_(lr * grad)
    """

    name: ClassVar[str]
    """How the command line and `gossamer.methods.get` call it."""
    facts: ClassVar[Facts]
    """What it is, costs, needs and promises."""

    _registry: ClassVar[dict[str, type["Method"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            return
        if not hasattr(cls, "facts"):
            raise InputError(
                f"The method '{cls.name}' declares no facts; give the class {cls.__qualname__} a line such as "
                f"facts = Facts(title='{cls.__qualname__}', sends=1)."
            )
        known = Method._registry.get(specs.normalized(cls.name))
        if known and (known.__module__, known.__name__) != (cls.__module__, cls.__name__):
            raise InputError(
                f"The method name '{cls.name}' is taken by {known.__module__}.{known.__qualname__}; "
                f"give {cls.__qualname__} another."
            )
        Method._registry[specs.normalized(cls.name)] = cls

    def __repr__(self) -> str:
        """As a dataclass shows itself: runs are known by it, so it tells the numbers and not where the object lies."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.hyperparameters.items())
        return f"{type(self).__qualname__}({shown})"

    def initial(self, x: Tensor, net: Network) -> State:
        """Allocate what the method remembers, without any communication. All nodes start from the same x."""
        return State()

    @abstractmethod
    def step(self, state: Any, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """One round: change x and the state in place.

        `grad` is this round's gradient at x, weight decay included; the method may use it as scratch. `lr` is the step
        size eta, a number or a tensor that broadcasts to x. Rounds count from 0. A message that is needed only in the
        next round may be left pending in the state.
        """

    def correction(self, state: Any) -> Tensor:
        """What the method adds to a node's own direction to point it to the common one (methods that track)."""
        raise InputError(f"{self.facts.title} keeps no correction term: it does not track an average.")

    def check(self, topology: Topology) -> None:
        """Raise a `GossamerError` with the remedy if this method cannot run on `topology`."""
        self.facts.needs.check(self.facts.title, topology)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The numbers the method was made with."""
        names = _field_names(type(self))
        return dict(vars(self)) if names is None else {name: getattr(self, name) for name in names}

    @property
    def momentum(self) -> Scalar:
        """beta, or 0 for a method without momentum."""
        return getattr(self, "beta", 0.0)


def names() -> list[str]:
    """The names of all methods, the user's own included.

    >>> "momentum-tracking" in names()
    True
    """
    return list(Method._registry)


def find(name: str) -> type[Method]:
    """The class of the method called `name` (upper case, blanks and underscores do not matter).

    >>> find("Momentum Tracking").__name__
    'MomentumTracking'
    """
    key = specs.normalized(name)
    if key not in Method._registry:
        hint = "" if any(map(_is_own, Method._registry.values())) else _HOW_TO_BE_KNOWN
        raise InputError(f"{unknown('method', str(name), names())}{hint}")
    found = Method._registry[key]
    refuse_lost_fields(found)
    return found


_HOW_TO_BE_KNOWN = " A method of your own is known once its file is imported, or given to --load."


def refuse_lost_fields(method: type[Method]) -> None:
    """Raise a `GossamerError` for a class that annotates fields but is no dataclass: nobody could set them.

    >>> class Half(Method):
    ...     share: float = 0.5
    >>> refuse_lost_fields(Half)
    Traceback (most recent call last):
    ...
    gossamer.errors.InputError: Half annotates 'share' but is no dataclass, so 'share' is no hyper-parameter ...
    """
    declared = inspect.get_annotations(Method)
    for cls in method.__mro__:
        if not issubclass(cls, Method) or vars(cls).keys() & {"__dataclass_fields__", "__init__"}:
            continue
        fields = [k for k, v in inspect.get_annotations(cls).items() if k not in declared and "ClassVar" not in str(v)]
        if fields:
            raise InputError(
                f"{cls.__qualname__} annotates '{fields[0]}' but is no dataclass, so '{fields[0]}' is no "
                f"hyper-parameter and cannot be set; write @dataclass(frozen=True, eq=False) above "
                f"class {cls.__qualname__}."
            )


def _is_own(method: type[Method]) -> bool:
    """Whether it is the user's own and not one that comes with Gossamer."""
    return not method.__module__.startswith("gossamer.")


def get(spec: str, **hyperparameters: Any) -> Method:
    """The method that `spec` describes: a name, with hyper-parameters after a colon or as keywords.

    >>> get("momentum-tracking", beta=0.9)
    MomentumTracking(beta=0.9, init='theorem')
    >>> get("momentum-tracking:beta=0.5,init=zero")
    MomentumTracking(beta=0.5, init='zero')
    """
    name, rest = specs.split(spec)
    cls = find(name)
    if rest:
        hyperparameters = {**specs.parameters("method", cls.name, cls, rest), **hyperparameters}
    known = _field_names(cls)
    for key in hyperparameters:
        if known is not None and key not in known:
            if not known:
                raise InputError(f"{cls.facts.title} takes no hyper-parameters, so '{key}' means nothing to it.")
            raise unknown(f"hyper-parameter of {cls.facts.title}", key, known)
    try:
        inspect.signature(cls).bind(**hyperparameters)
    except TypeError as error:
        raise InputError(
            f"{cls.facts.title} cannot be made: {error}; hyper-parameters follow its name, as in {cls.name}:key=value."
        ) from None
    return cls(**hyperparameters)


def _field_names(cls: type) -> list[str] | None:
    """The hyper-parameters of a method written as a dataclass; None for any other class."""
    return [f.name for f in dataclasses.fields(cls) if f.init] if dataclasses.is_dataclass(cls) else None


def _shapes(value: object) -> Any:
    """The shape of a tensor, or those of the tensors of a message; None for a number."""
    if isinstance(value, tuple | list):
        return [_shapes(v) for v in value]
    return tuple(value.shape) if isinstance(value, Tensor) else None
