"""The paper's tables and figures as grids: one TOML file each in the folder `recipes`, to be opened and read.

A recipe is a grid file (`gossamer.experiments.grid`) that holds the paper's setting, with three more tables: [paper]
says where the published accuracies are, [scale.quick] and [scale.smoke] hold the keys that those scales replace. In a
smoke test small stand-ins replace missing data and deep models: `plan`.
"""

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from gossamer.errors import InputError, unknown
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import Grid, points_of

Scale = Literal["full", "quick", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SYNTHETIC = "synthetic"
"""The one recipe that trains nothing: its keys are those of `SyntheticConfig`."""

_FOLDER = Path(__file__).parent / "recipes"

DIGITS = {"dataset": "digits", "model": "small-cnn", "batch_size": 32, "lr": 0.02, "rounds": 80}
"""What replaces a dataset that is not on this machine, in a smoke test."""

DEEP = ("vgg-11", "resnet-34")
"""Models whose evaluation alone takes minutes without a GPU; LeNet replaces them in a smoke test."""


@dataclass(frozen=True)
class PaperRecipe:
    """Title, description and what is compared with what."""

    name: str
    title: str
    description: str
    table: int | None
    """The paper's table that holds the published accuracies; None: there are none."""
    panels: tuple[str, ...]
    """Methods are compared among experiments that agree in these keys."""
    average: str
    """The key over which the panels are also averaged, or an empty string."""


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


def about(name: str) -> PaperRecipe:
    """Title, description and what is compared with what.

    >>> about("table4").panels
    ('topology', 'partition')
    """
    values = _values(name)
    paper = values.get("paper", {})
    return PaperRecipe(
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
    """The experiments of a table or figure; `lrs` and `seeds` replace the recipe's.

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


@dataclass(frozen=True)
class PlannedRun:
    """An experiment of the recipe, and the one that is carried out for it: the same, or a stand-in."""

    asked: Experiment
    made: Experiment


@dataclass(frozen=True)
class PaperPlan:
    """The experiments that are carried out for a recipe."""

    planned: list[PlannedRun]
    notes: list[str]
    """A sentence for every stand-in."""

    @property
    def stand_ins(self) -> str:
        """What replaced what, in a few words; empty if everything is as in the recipe."""
        places: dict[str, dict[str, None]] = {}
        for p in self.planned:
            for old, new in ((p.asked.dataset, p.made.dataset), (p.asked.model_name, p.made.model_name)):
                if old != new:
                    places.setdefault(new, {})[old] = None
        return "; ".join(f"{new} in place of {', '.join(olds)}" for new, olds in places.items())

    @property
    def experiments(self) -> list[Experiment]:
        """What is carried out, each experiment once."""
        return list({p.made.id: p.made for p in self.planned}.values())


def plan(
    grid: Grid, scale: Scale, data_dir: Path | None = None, *, need_data: bool = True, keep_lr: bool = False
) -> PaperPlan:
    """The experiments to carry out on this machine. Only the scale "smoke" has stand-ins for missing data.

    need_data
        Refuse other scales if data is missing; off when nothing will be trained.
    keep_lr
        Stand-ins keep the step sizes, because the user gave them.
    """
    missing = missing_datasets(grid.experiments, data_dir)
    if missing and scale != "smoke" and need_data:
        raise InputError(
            f"Not on this machine: {', '.join(missing)}. Run gossamer data get {missing[0]}, name the directory with "
            "--data-dir, leave it out with --only dataset=..., or try it on digits with --scale smoke."
        )
    if scale != "smoke":
        return PaperPlan([PlannedRun(e, e) for e in grid.experiments], [])
    found = [PlannedRun(e, _stand_in(e, missing, keep_lr)) for e in grid.experiments]
    return PaperPlan(found, _notes(found, missing))


def missing_datasets(experiments: Sequence[Experiment], data_dir: Path | None = None) -> list[str]:
    """The datasets of these experiments that are not on this machine, in the order in which they are needed."""
    from gossamer.data import status

    here = {s.name for s in status(data_dir) if s.folder is not None}
    return [name for name in dict.fromkeys(e.dataset for e in experiments) if name not in here]


def _stand_in(experiment: Experiment, missing: Collection[str], keep_lr: bool) -> Experiment:
    if experiment.dataset in missing:
        change: dict[str, Any] = {k: v for k, v in DIGITS.items() if not (k == "lr" and keep_lr)}
        return replace(experiment, **change, partition=experiment.partition.replace("min_size=100", "min_size=32"))
    if experiment.model_name in DEEP:
        return replace(experiment, model="lenet")
    return experiment


def _notes(planned: Sequence[PlannedRun], missing: Sequence[str]) -> list[str]:
    notes = []
    if missing:
        notes.append(
            f"Not on this machine: {', '.join(missing)} (to fetch: gossamer data get {missing[0]}). The small digits "
            "stand in, with a small network: these accuracies do not reproduce the paper's."
        )
    replaced = {p.asked.model_name for p in planned if p.asked.model_name in DEEP and p.made.model_name == "lenet"}
    if replaced:
        notes.append(
            f"{' and '.join(sorted(replaced))} would take minutes per run, so lenet stands in: these accuracies do "
            "not reproduce the paper's."
        )
    return notes
