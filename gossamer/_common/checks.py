"""Checks of numbers that users pass: one sentence per mistake."""

import math
import operator
from numbers import Real
from typing import SupportsFloat, SupportsIndex, TypeGuard

from gossamer.errors import InputError


def whole_number(value: object, what: str, least: int | None = 0) -> int:
    """`value` as an int, at least `least` (None: any).

    >>> whole_number(8, "the number of nodes", least=1)
    8
    """
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
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
    return whole_number(n, "the number of nodes", least=1)


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
