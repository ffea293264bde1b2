"""The paper's tables and figures as grids: one TOML file each in `recipes/`, to be opened and read.

A recipe is a grid file (`gossamer.experiments.grid`) that holds the paper's setting, with three more tables: [paper]
says where the published accuracies are, [scale.quick] and [scale.smoke] hold the keys that those scales replace.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from gossamer.errors import unknown
from gossamer.experiments.grid import Grid, points_of

Scale = Literal["full", "quick", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SYNTHETIC = "synthetic"
"""The one recipe that trains nothing: its keys are those of `SyntheticConfig`."""

_FOLDER = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Recipe:
    """What a recipe says of itself."""

    name: str
    title: str
    description: str
    table: int | None
    """The paper's table that holds the published accuracies; None: there are none."""
    panels: tuple[str, ...]
    """Methods are compared among experiments that agree in these keys."""
    average: str
    """The key over which the panels are averaged besides, or nothing."""


def names() -> list[str]:
    """Every recipe: tables, figures, the synthetic experiment.

    >>> names()[:3]
    ['table2', 'table3', 'table4']
    """
    found = [path.stem for path in _FOLDER.glob("*.toml")]
    return sorted(found, key=lambda name: (("table", "figure", "synthe").index(name[:6].rstrip("0123456789")), name))


def text(name: str) -> str:
    """The file as it was written."""
    if name not in names():
        raise unknown("table or figure of the paper", name, names())
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def about(name: str) -> Recipe:
    """Title, description and what is compared with what.

    >>> about("table4").panels
    ('topology', 'partition')
    """
    values = _values(name)
    paper = values.get("paper", {})
    return Recipe(
        name=name,
        title=values["title"],
        description=values["description"],
        table=paper.get("table"),
        panels=tuple(paper.get("panels", ())),
        average=paper.get("average", ""),
    )


def settings(name: str, scale: Scale = "full") -> dict[str, Any]:
    """The keys of the recipe with those that the scale replaces."""
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    values = _values(name)
    replaced = values.get("scale", {}).get(scale, {})
    return {**{k: v for k, v in values.items() if k not in ("paper", "scale")}, **replaced}


def read(
    name: str, scale: Scale = "full", *, lrs: Sequence[float] | None = None, seeds: Sequence[int] | None = None
) -> Grid:
    """The experiments of a table or figure; `lrs` and `seeds` take the place of the recipe's.

    >>> len(read("table2").experiments), len(read("table2", "quick").experiments)
    (648, 72)
    """
    values = settings(name, scale)
    given = {"lr": list(lrs) if lrs else None, "seed": list(seeds) if seeds else None}
    values.update({key: value for key, value in given.items() if value})
    return Grid.from_dict(values, source=f"{name} ({scale})")


def datasets(name: str) -> list[str]:
    """The datasets that it needs at full scale.

    >>> datasets("table3"), datasets("synthetic")
    (['cifar-10'], [])
    """
    found = _values(name).get("dataset", [])
    return found if isinstance(found, list) else [found]


def count(name: str, scale: Scale = "full") -> int:
    """The number of its experiments, without making them; the synthetic one is one.

    >>> count("table8")
    54
    """
    return 1 if name == SYNTHETIC else len(points_of(settings(name, scale)))


@cache
def _values(name: str) -> dict[str, Any]:
    return tomllib.loads(text(name))
