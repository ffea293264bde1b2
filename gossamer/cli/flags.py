"""The options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment


class Given(Experiment):
    """An experiment that remembers which of its fields were given, so that a file's values show through the others."""

    given: dict[str, Any]

    def __new__(cls, **given: Any) -> "Given":
        """Keep what was given."""
        self = object.__new__(cls)
        object.__setattr__(self, "given", given)
        return self

    @property
    def flags(self) -> dict[str, Any]:
        """What was given. How long to train is said once, and epochs take the place of a file's rounds too."""
        if "epochs" not in self.given:
            return self.given
        if self.given.get("rounds"):
            raise InputError("--rounds and --epochs both say how long to train; give one of them.")
        return {**self.given, "rounds": 0}


@dataclass(frozen=True, kw_only=True)
class GivenToAll(Given):
    """The same where several methods share the settings: --method is not offered."""

    method: Annotated[str, Parameter(show=False)] = Experiment.method


Settings = Annotated[Given, Parameter(name="*")]
"""One option for each field of an experiment."""

SharedSettings = Annotated[GivenToAll, Parameter(name="*")]
"""The same without the method."""

Load = Annotated[tuple[Path, ...], Parameter(name="--load", negative=())]
"""Python files that define methods of one's own."""


Only = Annotated[tuple[str, ...], Parameter(name="--only", negative=(), consume_multiple=True)]
"""A part of the experiments: key=value words, see `gossamer.experiments.grid_filter`."""


def words(text: str) -> list[str]:
    """What stands between the commas of an option's value."""
    return [word.strip() for word in text.split(",") if word.strip()]


def specs(text: str) -> list[str]:
    """The things that a list names; `key=value` belongs to the thing before it.

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
    """The numbers between the commas of the value of the option `name`."""
    try:
        return [kind(word) for word in words(text)]
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{name} must be {wanted} separated by commas, not '{text}'.") from None
