"""From a recipe to the experiments that are carried out here, with stand-ins in a smoke test."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import Grid
from gossamer.experiments.paper.recipes import Scale

DIGITS = {"dataset": "digits", "model": "small-cnn", "batch_size": 32, "lr": 0.02, "rounds": 80}
"""What takes the place of a dataset that is not on this machine, in a smoke test."""

DEEP = ("vgg-11", "resnet-34")
"""Models whose evaluation alone takes minutes without a GPU; LeNet takes their place in a smoke test."""


@dataclass(frozen=True)
class Planned:
    """An experiment of the recipe, and what is carried out for it: the same, or a stand-in."""

    asked: Experiment
    made: Experiment


@dataclass(frozen=True)
class Plan:
    """What is carried out for a recipe."""

    planned: list[Planned]
    notes: list[str]
    """A sentence for every stand-in."""

    @property
    def stand_ins(self) -> str:
        """What took the place of what, in a few words; empty if everything is as in the recipe."""
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
) -> Plan:
    """What to carry out on this machine. Missing data has a stand-in at the scale "smoke" only.

    need_data
        Refuse other scales when data is missing; off when nothing will be trained.
    keep_lr
        The step sizes were asked for, so a stand-in keeps them.
    """
    missing = missing_datasets(grid.experiments, data_dir)
    if missing and scale != "smoke" and need_data:
        raise InputError(
            f"Not on this machine: {', '.join(missing)}. Run gossamer data get {missing[0]}, name the directory with "
            "--data-dir, leave it out with --only dataset=..., or see how it goes on digits with --scale smoke."
        )
    if scale != "smoke":
        return Plan([Planned(e, e) for e in grid.experiments], [])
    found = [Planned(e, _stand_in(e, missing, keep_lr)) for e in grid.experiments]
    return Plan(found, _notes(found, missing))


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


def _notes(planned: Sequence[Planned], missing: Sequence[str]) -> list[str]:
    notes = []
    if missing:
        notes.append(
            f"Not on this machine: {', '.join(missing)} (to fetch: gossamer data get {missing[0]}). The small digits "
            "stand in, with a small network: these accuracies are no reproduction of the paper's."
        )
    replaced = {p.asked.model_name for p in planned if p.asked.model_name in DEEP and p.made.model_name == "lenet"}
    if replaced:
        notes.append(
            f"{' and '.join(sorted(replaced))} would take minutes per run, so lenet stands in: these accuracies are "
            "no reproduction of the paper's."
        )
    return notes
