"""What stored runs say of an item of the paper: the accuracies beside the published ones, and what it took."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gossamer.experiments.paper.plan import Plan
from gossamer.experiments.paper.recipes import Recipe, Scale
from gossamer.experiments.paper.verdict import Verdict, judge
from gossamer.experiments.selection import Cell, select
from gossamer.experiments.store import StoredRun


@dataclass(frozen=True)
class Measurement:
    """A recipe, what was planned for it, the runs of it that there are, and what follows from them."""

    recipe: Recipe
    plan: Plan
    runs: Sequence[StoredRun]
    cells: list[Cell]
    verdict: Verdict

    def to_json(self, scale: Scale, commands: Sequence[str]) -> dict[str, Any]:
        """Plain words and numbers: the content of measured.json. `commands` are those that make the runs."""
        seconds = sorted(float(run.rows[-1]["seconds"]) for run in self.runs if run.finished and run.rows)
        return {
            "item": self.recipe.name,
            "title": self.recipe.title,
            "scale": scale,
            "epochs": self._epochs,
            "commands": list(commands),
            "runs": len(seconds),
            "seconds": {"median": round(median(seconds)), "longest": round(seconds[-1])} if seconds else None,
            **self.verdict.to_json(),
            "cells": [cell.to_dict() for cell in self.cells],
        }

    @property
    def _epochs(self) -> float | None:
        """The length of every run; None if they differ, or are counted in rounds."""
        lengths = {None if e.rounds else e.epochs for e in self.plan.experiments}
        return lengths.pop() if len(lengths) == 1 else None


def measure(recipe: Recipe, plan: Plan, runs: Sequence[StoredRun]) -> Measurement:
    """Choose the step sizes among the runs of a plan and set the accuracies beside the paper's."""
    cells = select(runs)
    return Measurement(recipe, plan, runs, cells, judge(recipe, plan.planned, cells))
