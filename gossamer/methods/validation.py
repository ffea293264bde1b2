"""Hyper-parameters are refused in the constructor, each mistake with its own sentence."""

from torch import Tensor

from gossamer.errors import InputError
from gossamer.methods.arithmetic import Scalar


def check_fraction(owner: str, name: str, value: Scalar) -> None:
    """Refuse a coefficient outside [0, 1): at 1 the sum it weighs would never forget and grow without bound."""
    _check_number(owner, name, value)
    low, high = (float(value.min()), float(value.max())) if isinstance(value, Tensor) else (value, value)
    if not (low >= 0 and high < 1):
        shown = low if not low >= 0 else high
        raise InputError(
            f"{owner} needs 0 <= {name} < 1, but {name} is {shown:g}: at 1 or more the running sum would grow without "
            f"bound, below 0 it would point backwards; 0.9 is usual."
        )


def check_positive(owner: str, name: str, value: Scalar) -> None:
    """Refuse a coefficient that is not above zero."""
    _check_number(owner, name, value)
    low = float(value.min()) if isinstance(value, Tensor) else value
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


def _check_number(owner: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise InputError(f"{owner} needs a number for {name}, but {name} is {value!r}.")
