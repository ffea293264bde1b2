"""Whole numbers on the command line."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import CoercionError, Parameter, Token


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    """20000, 20_000 and 2e4 are whole numbers; 2.5 is none, and must not be rounded behind the user's back."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
        if value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise CoercionError(token=tokens[0], target_type=int)


Whole = Annotated[int, Parameter(converter=_whole)]
"""The type of an option that counts something."""
