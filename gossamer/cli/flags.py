"""The options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gossamer.errors import GossamerError
from gossamer.experiments.experiment import Experiment


class Given(Experiment):
    """An experiment that remembers which of its fields were given, so that a file's values show through the others."""

    given: dict[str, Any]

    def __new__(cls, **given: Any) -> "Given":
        """Keep what was given."""
        self = object.__new__(cls)
        object.__setattr__(self, "given", given)
        return self


Settings = Annotated[Given, Parameter(name="*")]
"""One option for each field of an experiment."""

Load = Annotated[tuple[Path, ...], Parameter(name="--load", negative=())]
"""Python files that define methods of one's own."""


def words(text: str) -> list[str]:
    """What stands between the commas of an option's value."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(name: str, text: str, kind: type[int] | type[float] = float) -> list[Any]:
    """The numbers between the commas of the value of the option `name`."""
    try:
        return [kind(word) for word in words(text)]
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise GossamerError(f"{name} must be {wanted} separated by commas, not '{text}'.") from None
