"""Make what is published here from the runs that are kept in results/runs.

python results/publish.py            every item: NAME/measured.json, and the learning curves of each panel as a PNG
python results/publish.py --check    exit with 1 and name the files that are not what the runs say
python results/publish.py --make ITEM [dataset=... k=...]
                                     make the runs that an item of the paper lacks, two at a time: all step sizes on
                                     the first seed, then the best one on the others; continues what was stopped

The synthetic experiment has no runs to keep: what `gossamer paper synthetic` has written is taken from
out/paper/synthetic, if it is there. The pages take their numbers from measured.json (docs/generate.py).
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from frontier import COMPARISONS
from PIL import Image

from gossamer._common.files import replacing, write_text
from gossamer.cli.progress import sweep_progress
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import read_grid
from gossamer.experiments.grid_filter import part_of, wanted
from gossamer.experiments.paper import recipes
from gossamer.experiments.paper.recipes import PaperPlan, PaperRecipe, PlannedRun, Scale, plan
from gossamer.experiments.paper.verdict import measure
from gossamer.experiments.selection import select
from gossamer.experiments.store import StoredRun
from gossamer.experiments.store import runs_of as stored_runs
from gossamer.experiments.sweep import run_sweep
from gossamer.report import write_figures

HERE = Path(__file__).parent
RUNS = HERE / "runs"
PANELS = ("dataset", "partition")
"""What is compared within, also where the paper's table has one dataset: panels are called "cifar-10, k = 4"."""


@dataclass(frozen=True)
class PaperItem:
    """A table of the paper, or a part of it, at a scale."""

    name: str
    table: str
    scale: Scale
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    only: dict[str, list[str]]

    @property
    def commands(self) -> list[str]:
        """The step sizes are compared on the first seed; the other seeds are run with the one that won."""
        commands = [self._command(self.only, self.lrs, self.seeds[:1])]
        planned = [e for e in self.plan()[1].experiments if e.seed in self.seeds[1:]]
        for lr in self.lrs:
            there = [e for e in planned if e.lr == lr and (RUNS / e.id).exists()]
            if there and len(there) == sum(e.lr == lr for e in planned):
                commands.append(self._command(self.only, [lr], self.seeds[1:]))
                continue
            for panel in dict.fromkeys((e.dataset, e.partition) for e in there):
                chosen = [e.method for e in there if (e.dataset, e.partition) == panel]
                only = {"dataset": [panel[0]], "k": [_k_of(panel[1])], "method": [*dict.fromkeys(chosen)]}
                commands.append(self._command(only, [lr], self.seeds[1:]))
        return commands

    def make(self, only: Mapping[str, list[str]]) -> None:
        """Make the runs that are missing, of this part of the item."""
        experiments = replace(self, only={**self.only, **only}).plan()[1].experiments
        first = [e for e in experiments if e.seed == self.seeds[0]]
        _make(self.name, first)
        best = {cell.key: cell.lr for cell in select(stored_runs(first, RUNS))}
        _make(self.name, [e for e in experiments if e.seed != self.seeds[0] and e.lr == best[e.cell]])

    def _command(self, only: dict[str, list[str]], lrs: Sequence[float], seeds: Sequence[int]) -> str:
        chosen = " ".join(f"{key}={_listed(values)}" for key, values in only.items())
        return (
            f"gossamer paper {self.table} --scale {self.scale} --only {chosen} --lrs {_listed(lrs)} "
            f"--seeds {_listed(seeds)} --runs results/runs"
        )

    def plan(self) -> tuple[PaperRecipe, PaperPlan]:
        """What it compares, and all that belongs to it."""
        grid = part_of(recipes.read(self.table, self.scale, lrs=self.lrs, seeds=self.seeds), self.only)
        return replace(recipes.about(self.table), panels=PANELS), plan(grid, self.scale, need_data=False)


@dataclass(frozen=True)
class SweepItem:
    """A comparison that the paper does not have: NAME/sweep.toml."""

    name: str
    title: str

    @property
    def commands(self) -> list[str]:
        """One sweep."""
        return [f"gossamer sweep results/{self.name}/sweep.toml --out results/runs"]

    def plan(self) -> tuple[PaperRecipe, PaperPlan]:
        """What it compares, and all that belongs to it."""
        grid = read_grid(HERE / self.name / "sweep.toml")
        recipe = PaperRecipe(self.name, self.title, "", table=None, panels=PANELS, average="")
        return recipe, PaperPlan([PlannedRun(e, e) for e in grid.experiments], [])


def _make(title: str, experiments: Sequence[Experiment]) -> None:
    with sweep_progress(title, experiments, RUNS) as advance:
        print(run_sweep(experiments, RUNS, jobs=2, on_progress=advance).sentence)


CIFAR = {"dataset": ["cifar-10"], "k": ["10", "4"]}
BOTH = {**CIFAR, "dataset": ["fashion-mnist", "cifar-10"]}
FULL = (0.005, 0.001, 0.0005)
ITEMS: list[PaperItem | SweepItem] = [
    PaperItem("table2", "table2", "quick", (0.005, 0.001), (0, 1, 2), BOTH),
    PaperItem("table2-full", "table2", "full", FULL, (0, 1, 2), BOTH),
    PaperItem("table6", "table6", "quick", (0.005, 0.001), (0, 1, 2), CIFAR),
    SweepItem("relaysum", "RelaySum and RelaySumM with LeNet on CIFAR-10"),
    SweepItem("churn", "LeNet on Fashion-MNIST with nodes that come and go"),
    PaperItem("table8", "table8", "quick", (0.005, 0.001), (0, 1, 2), CIFAR),
    PaperItem("table6-full", "table6", "full", FULL, (0, 1, 2), {**CIFAR, "k": ["4"]}),
    PaperItem("table8-full", "table8", "full", FULL, (0, 1, 2), {**CIFAR, "k": ["4"]}),
]


def measured(item: PaperItem | SweepItem, stored: Sequence[StoredRun]) -> dict[str, Any]:
    """What these runs say of an item, and how the runs of a full-length one end."""
    told = measure(*item.plan(), stored).to_json(getattr(item, "scale", "quick"), item.commands)
    told = {**told, "item": item.name}
    return {**told, "endings": endings(stored)} if told["scale"] == "full" else told


def endings(stored: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """How each cell ends: the last evaluation, which is what is reported, beside others that one could report."""
    found = []
    for cell in select(stored):
        rows = [run.rows for run in cell.runs]
        if rows:
            last, lately = [r[-1] for r in rows], [[row["accuracy"] for row in r[-10:]] for r in rows]
            found.append(
                {
                    "panel": _panel_of(cell.experiment),
                    "label": cell.label,
                    "lr": cell.lr,
                    "last": fmean(row["accuracy"] for row in last),
                    "last_five": fmean(fmean(part[-5:]) for part in lately),
                    "swing": fmean(max(part) - min(part) for part in lately),
                    "worst_node": fmean(row["accuracy_min"] for row in last),
                    "averaged": fmean(row["averaged_accuracy"] for row in last),
                }
            )
    return found


def _panel_of(experiment: Experiment) -> str:
    """The title of the panel to which an experiment belongs."""
    return f"{experiment.dataset}, k = {_k_of(experiment.partition)}"


def _k_of(partition: str) -> str:
    """The parameter k of "k-class:k=4,draw=paper"."""
    return partition.partition("k=")[2].partition(",")[0]


def runs_of(item: PaperItem | SweepItem) -> list[StoredRun]:
    """The runs of an item that are finished."""
    return [run for run in stored_runs(item.plan()[1].experiments, RUNS) if run.finished and run.rows]


def curves(item: PaperItem | SweepItem, stored: Sequence[StoredRun]) -> dict[Path, list[StoredRun]]:
    """NAME/DATASET-PARTITION.png, and the runs whose test accuracy over the epochs it shows."""
    panels: dict[Path, list[StoredRun]] = {}
    for run in stored:
        e = run.experiment
        name = f"{e.dataset}-k{_k_of(e.partition)}.png"
        panels.setdefault(HERE / item.name / name, []).append(run)
    return panels


def write_curves(panels: dict[Path, list[StoredRun]]) -> None:
    """Draw them."""
    for path, runs in panels.items():
        with tempfile.TemporaryDirectory() as directory:
            write_figures(runs, Path(directory), formats=("png",))
            _write_small(Path(directory) / "accuracy.png", path)


def publish_synthetic(made: Path) -> None:
    """synthetic/: the levels, the curves at fewer points and digits, and both figures; of the paper's setting alone."""
    told = json.loads((made / "measured.json").read_text(encoding="utf-8"))
    paper = recipes.settings(recipes.SYNTHETIC, "full")
    other = [key for key, value in told["config"].items() if key in paper and paper[key] != value]
    if other:
        print(f"{made} is not the paper's setting ({', '.join(other)}), so it is not published.", file=sys.stderr)
        return
    for cell in told["cells"]:
        points = list(zip(cell.pop("rounds"), cell.pop("curve"), strict=True))
        cell["curve"] = [[r, float(f"{v:.4g}")] for r, v in points if r % (200 if r > 400 else 20) == 0]
    cells = ",\n".join(json.dumps(cell) for cell in told.pop("cells"))
    head = json.dumps({"command": "gossamer paper synthetic", **told}, indent=1)[:-2]
    write_text(HERE / "synthetic" / "measured.json", f'{head},\n "cells": [\n{cells}\n]}}\n')
    for name in ("long_run.png", "initial_phase.png"):
        _write_small(made / name, HERE / "synthetic" / name)


def _write_small(picture: Path, path: Path) -> None:
    """A palette keeps a chart of a few colours at a third of its size, without a visible difference."""
    image = Image.open(picture).convert("RGB")
    image.thumbnail((1200, 1200))
    with replacing(path) as temporary:
        image.quantize(64).save(temporary, format="PNG", optimize=True)


def _listed(values: Sequence[Any]) -> str:
    return ",".join(map(str, values))


def main() -> int:
    """Make, write or check."""
    if "--make" in sys.argv:
        name, *only = sys.argv[sys.argv.index("--make") + 1 :]
        {item.name: item for item in ITEMS if isinstance(item, PaperItem)}[name].make(wanted(only))
        return 0
    old = []
    for item in ITEMS:
        stored = runs_of(item)
        if not stored:
            continue
        path = HERE / item.name / "measured.json"
        text = json.dumps(measured(item, stored), indent=1) + "\n"
        panels = curves(item, stored)
        missing = [picture for picture in panels if not picture.exists()]
        if not missing and path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        old += missing or [path]
        if "--check" not in sys.argv:
            write_text(path, text)
            write_curves(panels)
    for comparison in COMPARISONS:
        cells = comparison.cells()
        if len(cells) < 2:
            continue
        told = comparison.measured(cells)
        path, picture = comparison.place / "measured.json", comparison.place / f"{comparison.name}.png"
        text = json.dumps(told, indent=1) + "\n"
        if picture.exists() and path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        old.append(path)
        if "--check" not in sys.argv:
            write_text(path, text)
            with tempfile.TemporaryDirectory() as directory:
                comparison.draw(told, Path(directory) / "drawn.png")
                _write_small(Path(directory) / "drawn.png", picture)
    made = HERE.parent / "out" / "paper" / "synthetic"
    if (made / "measured.json").exists() and "--check" not in sys.argv:
        publish_synthetic(made)
    if "--check" in sys.argv:
        for path in old:
            print(f"results/{path.relative_to(HERE)} is out of date; run: make results", file=sys.stderr)
        return int(bool(old))
    return 0


if __name__ == "__main__":
    sys.exit(main())
