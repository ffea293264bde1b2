"""The options that several commands share."""

import importlib.util
import sys
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


def load_python(paths: tuple[Path, ...]) -> None:
    """Run Python files, so that the methods they define are known by name."""
    for path in paths:
        if not path.is_file():
            raise GossamerError(f"There is no file {path} to load; give a Python file that defines your methods.")
        name = f"gossamer_loaded_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise GossamerError(f"{path} is not a Python file; its name must end in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
