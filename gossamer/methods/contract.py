"""What a method is: what it declares, what it remembers, what it computes; and the registry of all methods.

The conformance kit checks what is declared, errors quote it, and the command line and the documentation show it.
"""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from dataclasses import field
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gossamer import compression
from gossamer._common import checks
from gossamer._common.formatting import html_table
from gossamer.compression import Compressor
from gossamer.errors import InputError, unknown
from gossamer.network.contract import Network, Pending, Ready
from gossamer.topology import Needs, Topology

Scalar = float | Tensor
"""A coefficient. A tensor broadcasts to the vector: it is built only where parameter groups differ."""


def _fact(default: object, explanation: str, label: str = "") -> Any:
    """A field of `Facts` and what it means; `label` is what tables call a promise."""
    return field(default=default, metadata={"explanation": explanation, "label": label})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What a method is, costs, needs and promises. Every promise is checked by `gossamer.testing.check_method`.

    >>> Facts(title="DSGD", sends=1).cost, Facts(title="K-GT", sends=2, every=5).cost
    ('1 vector', '2 vectors every 5 rounds')
    """

    title: str = field(metadata={"explanation": "The name as papers write it.", "label": ""})
    citation: str = _fact("", "Where the method comes from.")
    sends: int | Literal["all-reduce"] = _fact(1, 'Vectors sent over each edge in an exchange, or "all-reduce".')
    every: int = _fact(1, "Rounds from one exchange to the next: in between, a node is silent.")
    compresses: bool = _fact(False, "What is sent goes through the compressor that `compress` names.")
    uncompressed: str = _fact("", "The method that it is with the identity as compressor and gamma = 1.")
    starts_with_all_reduce: bool = _fact(False, "The first step takes an additional all-reduce.")
    needs: Needs = field(default=Needs(), metadata={"explanation": "What it needs of the graph.", "label": ""})
    exact: bool = _fact(
        False,
        "With full gradients every node reaches the common optimum, however different the nodes are (static W).",
        "exact",
    )
    exact_on_schedules: bool = _fact(False, "The same on graphs that change over time.", "exact on schedules")
    preserves_mean: bool = _fact(
        False,
        "The mean of x over the nodes moves as SGD with momentum on the mean gradient: xbar <- xbar - eta ubar.",
        "mean follows SGD",
    )
    equals_sgd_alone: bool = _fact(
        False,
        "One node, or any number of identical ones, follows torch.optim.SGD with the same momentum.",
        "equals SGD alone",
    )
    tracks: bool = _fact(
        False, "The correction c_i, shown by `Method.correction`, has mean zero in every round.", "tracks"
    )
    overlaps: bool = _fact(
        False,
        "Its message leaves when a step ends and is needed only when the next begins: it travels during the gradient.",
        "overlaps",
    )

    @property
    def cost(self) -> str:
        """What crosses an edge in one round, in words."""
        if self.sends == "all-reduce":
            return "one all-reduce"
        kind = "compressed vector" if self.compresses else "vector"
        often = f" every {self.every} rounds" if self.every > 1 else ""
        return f"{self.sends} {kind}{'' if self.sends == 1 else 's'}{often}"

    def _repr_html_(self) -> str:
        promised = [(label, meaning) for name, (label, meaning) in self.promises().items() if getattr(self, name)]
        rows = [("sends over an edge in a round", self.cost), ("needs of the graph", self.needs), *promised]
        return html_table([], rows, ": ".join(filter(None, [self.title, self.citation])))

    @classmethod
    def promises(cls) -> dict[str, tuple[str, str]]:
        """Every promise a method can make, by the name of its field: its label in tables, and what it means.

        >>> Facts.promises()["exact_on_schedules"]
        ('exact on schedules', 'The same on graphs that change over time.')
        """
        promised = [f for f in dataclasses.fields(cls) if f.metadata["label"]]
        return {f.name: (f.metadata["label"], f.metadata["explanation"]) for f in promised}


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
    """The vectors that stay valid when nodes leave or join; None: unknown, and the method starts again."""

    sends_x: ClassVar[bool] = True
    """Whether messages that overlap hold x itself, so that a write to x between two steps comes too late for them."""

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """Go on among other nodes: what `keeps` names has been taken over, all else is as `initial` made it.

        The network may be used: all nodes do this in the same round, which has not begun.
        """

    def shrink(self, x: Tensor, factor: Scalar) -> None:
        """X <- factor X between two steps, on all nodes: decoupled weight decay, with factor = 1 - eta * decay.

        Mixing is linear, so that of an x that is under way, the first vector of a message, the mixed one shrinks.
        """
        x.mul_(factor)
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Pending) and self.sends_x:
                value.wait()[0].mul_(factor)

    def tracked(self) -> Tensor | None:
        """See `Method.tracked`."""
        return None

    def correction(self) -> Tensor | None:
        """See `Method.correction`."""
        return None

    def known(self) -> list[tuple[Tensor, Tensor]]:
        """What the neighbours know of each vector that is sent compressed, h, with W h - h as it is kept."""
        return []

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
        known = Method._registry.get(checks.normalized(cls.name))
        if known and (known.__module__, known.__name__) != (cls.__module__, cls.__name__):
            raise InputError(
                f"The method name '{cls.name}' is taken by {known.__module__}.{known.__qualname__}; "
                f"give {cls.__qualname__} another."
            )
        Method._registry[checks.normalized(cls.name)] = cls

    def __repr__(self) -> str:
        """As a dataclass shows itself: runs are identified by it, so it holds the numbers and no address."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.hyperparameters.items())
        return f"{type(self).__qualname__}({shown})"

    def initial(self, x: Tensor, net: Network) -> State:
        """Allocate what the method remembers, without any communication. All nodes start from the same x."""
        return State()

    @abstractmethod
    def step(self, state: Any, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        """One round: change x and the state in place.

        `grad` is this round's gradient at x, weight decay included; the method may use it as scratch. `lr` is the step
        size eta, a number or a tensor that broadcasts to x. A message that is needed only in the next round may be left
        pending in the state.

        `round` is the network's, from 0; parameters that are added later make their first step in a later round, so
        what a first step does differently must be decided by the state.
        """

    def tracked(self, state: Any) -> Tensor | None:
        """This node's estimate y of the average that the method tracks; None if it tracks none.

        How far the nodes' estimates are apart is reported as the tracking error of a run.
        """
        return state.tracked() if isinstance(state, State) else None

    def correction(self, state: Any) -> Tensor:
        """What the method adds to a node's own direction to point it to the common one (methods that track)."""
        correction = state.correction() if isinstance(state, State) else None
        if correction is None:
            raise InputError(f"{self.facts.title} keeps no correction term: it does not track an average.")
        return correction

    def check(self, topology: Topology) -> None:
        """Raise an `InputError` with the remedy if this method cannot run on `topology`."""
        self.facts.needs.check(self.facts.title, topology)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The numbers the method was made with."""
        names = _field_names(type(self))
        return dict(vars(self)) if names is None else {name: getattr(self, name) for name in names}

    @property
    def compressor(self) -> Compressor:
        """What vectors go through before they are sent: what the hyper-parameter `compress` names, else nothing."""
        return compression.get(getattr(self, "compress", "identity") if self.facts.compresses else "identity")

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
    key = checks.normalized(name)
    if key not in Method._registry:
        own = any(not method.__module__.startswith("gossamer.") for method in Method._registry.values())
        hint = "" if own else " A method of your own is known once its file is imported, or given to --load."
        raise InputError(f"{unknown('method', str(name), names())}{hint}")
    found = Method._registry[key]
    refuse_lost_fields(found)
    return found


def refuse_lost_fields(method: type[Method]) -> None:
    """Raise an `InputError` for a class that annotates fields but is no dataclass: they could not be set.

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


def get(spec: str, **hyperparameters: Any) -> Method:
    """The method that `spec` describes: a name, with hyper-parameters after a colon or as keywords.

    >>> get("momentum-tracking", beta=0.9)
    MomentumTracking(beta=0.9, init='theorem')
    >>> get("momentum-tracking:beta=0.5,init=zero")
    MomentumTracking(beta=0.5, init='zero')
    """
    name, rest = checks.split(spec)
    cls = find(name)
    if rest:
        hyperparameters = {**checks.parameters("method", cls.name, cls, rest), **hyperparameters}
    known = _field_names(cls)
    for key in hyperparameters:
        if known is not None and key not in known:
            if not known:
                raise InputError(f"{cls.facts.title} takes no hyper-parameters, so '{key}' means nothing to it.")
            raise unknown(f"hyper-parameter of {cls.facts.title}", key, known)
    try:
        checks.signature(cls).bind(**hyperparameters)
    except TypeError as error:
        raise InputError(
            f"{cls.facts.title} cannot be made: {error}; hyper-parameters follow its name, as in {cls.name}:key=value."
        ) from None
    return cls(**hyperparameters)


MethodChoice = Method | type[Method] | str


def resolve(given: MethodChoice) -> Method:
    """The method meant by an instance, a class (with its defaults) or a name.

    >>> resolve("dsgdm:beta=0.5")
    DSGDm(beta=0.5, nesterov=False)
    """
    if isinstance(given, str):
        return get(given)
    if isinstance(given, type) and issubclass(given, Method):
        try:
            return given()
        except TypeError as error:
            raise InputError(
                f"{given.__qualname__} cannot be made without arguments ({error}); give an instance of it."
            ) from None
    if not isinstance(given, Method):
        raise InputError(
            f"A method is a gossamer.Method or a name such as 'momentum-tracking', not {given!r}; "
            f"gossamer.methods.names() lists the names."
        )
    return given


@cache
def _field_names(cls: type) -> list[str] | None:
    """The hyper-parameters of a method written as a dataclass; None for any other class."""
    return [f.name for f in dataclasses.fields(cls) if f.init] if dataclasses.is_dataclass(cls) else None


def _shapes(value: object) -> Any:
    """The shape of a tensor, or those of the tensors of a message; None for a number."""
    if isinstance(value, tuple | list):
        return [_shapes(v) for v in value]
    return tuple(value.shape) if isinstance(value, Tensor) else None


# Elementwise updates in one pass over memory.


def add_scaled_(x: Tensor, a: Scalar, v: Tensor) -> Tensor:
    """x <- x + a v."""
    return x.addcmul_(v, a) if isinstance(a, Tensor) else x.add_(v, alpha=a)


def subtract_scaled(x: Tensor, a: Scalar, v: Tensor, out: Tensor) -> Tensor:
    """out <- x - a v. `out` may be x or v."""
    if isinstance(a, Tensor):
        return torch.addcmul(x, v, a, value=-1, out=out)
    return torch.sub(x, v, alpha=a, out=out)


def decay_and_add_(u: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """u <- b u + v."""
    return torch.addcmul(v, u, b, out=u) if isinstance(b, Tensor) else torch.add(v, u, alpha=b, out=u)


def blend_(m: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """m <- b m + (1 - b) v, a running average."""
    return add_scaled_(m.mul_(b), 1 - b, v)
