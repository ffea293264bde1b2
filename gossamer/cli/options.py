"""The types of options that several commands share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CoercionError, Parameter, Token

from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    """20000, 20_000 and 2e4 are whole numbers; 2.5 is not, and is not rounded."""
    text = tokens[0].value
    for parse in (int, float):
        try:
            if (value := parse(text)) == int(value):
                return int(value)
        except (ValueError, OverflowError):
            pass
    raise CoercionError(token=tokens[0], target_type=int)


Whole = Annotated[int, Parameter(converter=_whole)]
"""A whole number."""


class Given(Experiment):
    """The settings of an experiment that were given, so that those of a file apply to the others."""

    given: dict[str, Any]

    def __new__(cls, **given: Any) -> "Given":
        """Keep what was given."""
        self = object.__new__(cls)
        object.__setattr__(self, "given", given)
        return self

    @property
    def flags(self) -> dict[str, Any]:
        """The given settings. Only one of epochs and rounds may be given, and epochs replace the rounds of a file."""
        if "epochs" not in self.given:
            return self.given
        if self.given.get("rounds"):
            raise InputError("--rounds and --epochs both say how long to train; give one of them.")
        return {**self.given, "rounds": 0}


@dataclass(frozen=True, kw_only=True)
class GivenToAll(Given):
    """The same for several methods that share the settings: there is no --method."""

    method: Annotated[str, Parameter(show=False)] = Experiment.method


ExperimentSettings = Annotated[Given, Parameter(name="*")]
"""One option for each field of an experiment."""

SharedSettings = Annotated[GivenToAll, Parameter(name="*")]
"""The same without the method."""

Load = Annotated[tuple[Path, ...], Parameter(name="--load", negative=())]
"""Python files that define methods."""

Only = Annotated[tuple[str, ...], Parameter(name="--only", negative=(), consume_multiple=True)]
"""Conditions key=value that select a part of the experiments; see `gossamer.experiments.grid_filter`."""


def words(text: str) -> list[str]:
    """The parts of a value that is separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def specs(text: str) -> list[str]:
    """The specs of a list that is separated by commas; `key=value` belongs to the spec before it.

    >>> specs("dsgd, momentum-tracking:beta=0.5,init=zero")
    ['dsgd', 'momentum-tracking:beta=0.5,init=zero']
    """
    found: list[str] = []
    for word in words(text):
        if found and "=" in word.partition(":")[0]:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


def numbers(name: str, text: str, kind: type[int] | type[float] = float) -> list[Any]:
    """The numbers of the option `name`, separated by commas."""
    try:
        return [kind(word) for word in words(text)]
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{name} must be {wanted} separated by commas, not '{text}'.") from None
