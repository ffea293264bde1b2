"""How `.plot()` of a partition, a graph or a run reaches `gossamer.report`, which draws and lies above them all.

`gossamer.report` adds its functions to `DRAWERS` when it is imported. `gossamer/__init__.py`, the top of the package,
says how to import it. So nothing below `report` depends on it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.errors import InputError

DRAWERS: dict[str, Callable[..., Any]] = {}
"""What can be drawn, and the function that takes the object, the path or None, and options: partition, topology, run.
Each returns its matplotlib figure."""

LOADERS: list[Callable[[], object]] = []
"""Called before a drawing is looked up: `gossamer/__init__.py` adds the import of `gossamer.report`."""


def plot(kind: str, thing: object, path: str | os.PathLike[str] | None, **options: Any) -> Any:
    """Draw `thing`, a `kind` of `DRAWERS`, into a file and return its path; without one, return the figure."""
    if path is not None and not isinstance(path, str | os.PathLike):
        raise InputError(f"A drawing needs the path of a file, such as '{kind}.png', not {path!r}.")
    for load in LOADERS:
        load()
    figure = DRAWERS[kind](thing, None if path is None else Path(path), **options)
    return figure if path is None else Path(path)
