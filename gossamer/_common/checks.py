"""What users pass, checked with one sentence per mistake: numbers, and things by name with parameters.

Parameters stand after a colon: "ring", "k-class:k=4", "momentum-tracking:beta=0.5,init=zero". The command line, TOML
files and stored runs use the same specs. The parameters are read from the signature of the function or class that the
name stands for.
"""

import inspect
import math
import operator
from collections.abc import Callable, Collection
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, SupportsIndex, TypeGuard, get_args, get_origin

from gossamer.errors import InputError, unknown

if TYPE_CHECKING:
    from torch import Tensor

MOST_NODES = 1_000_000
_MOST_WHOLE = 2**62
"""Larger numbers do not fit into the integers of tensors and arrays, sums of them included."""


def whole_number(value: object, what: str, least: int | None = 0) -> int:
    """`value` as an int, at least `least` (None: any).

    >>> whole_number(8, "the number of nodes", least=1)
    8
    """
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if abs(number) > _MOST_WHOLE:
            raise InputError(f"{what[0].upper()}{what[1:]} must be at most 2^62, but it has {_digits(number)} digits.")
        if least is None or number >= least:
            return number
    bound = "" if least is None else f" of at least {least}"
    raise InputError(f"{what[0].upper()}{what[1:]} must be a whole number{bound}, not {value!r}.")


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a number, and neither infinite nor nan.

    >>> is_finite_number(0.5), is_finite_number("0.5"), is_finite_number(math.nan)
    (True, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def node_count(n: object) -> int:
    """`n` as a number of nodes: a whole number of at least 1."""
    number = whole_number(n, "the number of nodes", least=1)
    if number > MOST_NODES:
        raise InputError(f"There can be at most {MOST_NODES:,} nodes, not {number:,}; give fewer.")
    return number


def probability(value: object, what: str) -> float:
    """`value` as a float between 0 and 1.

    >>> probability(0.3, "the rewiring probability")
    0.3
    """
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and 0 <= number <= 1:
            return number
    raise InputError(f"{what[0].upper()}{what[1:]} must be a number between 0 and 1, not {value!r}.")


def check_fraction(owner: str, name: str, value: "float | Tensor") -> None:
    """Refuse a coefficient outside [0, 1): at 1 the sum it weighs would never forget and grow without bound."""
    low, high = _range(owner, name, value)
    if not (low >= 0 and high < 1):
        shown = low if not low >= 0 else high
        raise InputError(
            f"{owner} needs 0 <= {name} < 1, but {name} is {shown:g}: at 1 or more the running sum would grow without "
            f"bound, below 0 it would point backwards; 0.9 is usual."
        )


def check_positive(owner: str, name: str, value: "float | Tensor") -> None:
    """Refuse a coefficient that is not above zero."""
    low, _ = _range(owner, name, value)
    if not low > 0:
        raise InputError(f"{owner} needs {name} > 0, but {name} is {low:g}; leave it out for the usual value.")


def check_choice(owner: str, name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the choices."""
    if value not in choices:
        raise InputError(f"{owner} knows {name}={' and '.join(map(repr, choices))}, but {name} is {value!r}.")


def check_switch(owner: str, name: str, value: object) -> None:
    """Refuse what is not True or False: the word "false" would count as true."""
    if not isinstance(value, bool):
        raise InputError(f"{owner} needs True or False for {name}, but {name} is {value!r}.")


def _digits(number: int) -> int:
    """About how many: a number may be too long to be written."""
    return int(number.bit_length() * math.log10(2)) + 1


def _range(owner: str, name: str, value: "float | Tensor") -> tuple[float, float]:
    """The smallest and the largest value of a coefficient that is a number or a tensor."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value, value
    from torch import Tensor  # not above: the command line checks numbers without it

    if not isinstance(value, Tensor):
        raise InputError(f"{owner} needs a number for {name}, but {name} is {value!r}.")
    return float(value.min()), float(value.max())


# Things by name -------------------------------------------------------------------------------------------------------

Value = bool | int | float | str | tuple[float, ...]


signature = cache(inspect.signature)
"""Of what a name stands for: a grid asks for the same ones thousands of times."""


def normalized(name: str) -> str:
    """A name as it is looked up: upper case, blanks and underscores do not matter.

    >>> normalized(" Momentum Tracking")
    'momentum-tracking'
    """
    return str(name).strip().lower().replace("_", "-").replace(" ", "-")


def split(text: str) -> tuple[str, str]:
    """The name and the parameters after the colon.

    >>> split("k-class:k=4")
    ('k-class', 'k=4')
    """
    name, _, rest = text.partition(":")
    return name.strip(), rest.strip()


def parameters(
    kind: str, name: str, build: Callable[..., Any], text: str, *, given: Collection[str] = ()
) -> dict[str, Value]:
    """`key=value,key=value` as keyword arguments of `build`, each of the type that it declares.

    Arguments in `given` come from elsewhere and cannot be set here. Several numbers are joined by slashes.

    >>> from gossamer.data.partition import k_class
    >>> parameters("partition", "k-class", k_class, "k=4", given=("nodes", "seed"))
    {'k': 4}
    """
    declared = {k: p for k, p in signature(build).parameters.items() if k not in given}
    found: dict[str, Value] = {}
    before = ""
    for item in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not declared:
            raise InputError(f"The {kind} '{name}' takes no parameters, so leave out ':{text}'.")
        if key not in declared:
            error = unknown(f"parameter of {name}", key, declared)
            hint = f" If it belongs to {before}, write {before}+{item}." if ":" in before else ""
            raise InputError(f"{error}{hint}")
        before = item
        try:
            if not equals:
                raise ValueError
            found[key] = _convert(value, declared[key].annotation)
        except ValueError:
            shown = f"not '{value}'" if equals else "as in key=value"
            raise InputError(
                f"The parameter {key} of the {kind} '{name}' must be {_wanted(declared[key].annotation)}, {shown}."
            ) from None
    for key, parameter in declared.items():
        if parameter.default is parameter.empty and key not in found:
            example = {"a number": "0.3", "a whole number": "4"}.get(_wanted(parameter.annotation), "...")
            raise InputError(f"The {kind} '{name}' needs {key}, as in '{name}:{key}={example}'.")
    return found


def _convert(text: str, annotation: Any) -> Value:
    wanted = _wanted(annotation)
    if wanted == "true or false":
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _fail()
    if wanted == "a whole number":
        return int(text)
    if wanted == "a number":
        return float(text)
    if wanted == "numbers joined by slashes":
        return tuple(float(part) for part in text.split("/"))
    if get_origin(annotation) is Literal and text not in get_args(annotation):
        return _fail()
    return text


def _fail() -> Value:
    raise ValueError


def _wanted(annotation: Any) -> str:
    """The type of a parameter in words."""
    if annotation is bool:
        return "true or false"
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return "numbers joined by slashes"
    kinds = get_args(annotation) or (annotation,)
    if float in kinds:
        return "a number"
    if int in kinds:
        return "a whole number"
    return "a word"
