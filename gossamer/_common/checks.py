"""Checks of numbers that users pass: one sentence per mistake."""

import math
import operator
from numbers import Real
from typing import TYPE_CHECKING, SupportsFloat, SupportsIndex, TypeGuard

from gossamer.errors import InputError

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
