"""Comparisons with paired differences over seeds: accuracy against bytes (frontier, frontier-long, frontier-draws) and
lossy links.

    gossamer sweep results/NAME/sweep.toml --out results/runs     NAME is one of these, or lossy
    python results/frontier.py frontier                           frontier/seeds.toml: the best step sizes, other seeds,
                                                                  of the methods that sweep.toml runs on one
    gossamer sweep results/frontier/seeds.toml --out results/runs
    python results/publish.py                                     NAME/measured.json and NAME/NAME.png

All of them continue where they were stopped. The best step size is that with the highest validation accuracy at the
end; ones that diverged do not count.
"""

import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.transforms import Bbox

from gossamer._common.files import write_text
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import read_grid
from gossamer.experiments.selection import Cell, select
from gossamer.experiments.store import StoredRun, runs_of
from gossamer.methods import find
from gossamer.report.conclusion import t_quantile
from gossamer.report.figures import load_matplotlib, save
from gossamer.report.style import looks, matplotlib_marker

HERE = Path(__file__).parent
RUNS = HERE / "runs"
SEEDS = [1, 2, 3, 4]


@dataclass(frozen=True)
class Comparison:
    """NAME/sweep.toml and NAME/seeds.toml. Rows are compared with one of their panel: that with `base`."""

    name: str
    title: str
    panel: str
    base: dict[str, Any]

    @property
    def place(self) -> Path:
        """The folder of its files."""
        return HERE / self.name

    @property
    def commands(self) -> list[str]:
        """What makes its runs."""
        files = [file for file in ("sweep.toml", "seeds.toml") if (self.place / file).exists()]
        return [f"gossamer sweep results/{self.name}/{file} --out results/runs" for file in files]

    def experiments(self, *files: str) -> list[Experiment]:
        """Those of its files."""
        return [e for file in files if (self.place / file).exists() for e in read_grid(self.place / file).experiments]

    def cells(self, runs: Path = RUNS) -> list[Cell]:
        """Every method in every setting, with the best of its step sizes and the runs that are finished."""
        found = [r for r in runs_of(self.experiments("sweep.toml", "seeds.toml"), runs) if r.rows]
        return select(found)

    def write_seeds(self, runs: Path = RUNS) -> list[str]:
        """Write seeds.toml, and return what is not finished yet."""
        missing = [e.id for e in self.experiments("sweep.toml") if not (runs / e.id / "done.json").exists()]
        complete = {e.cell for e in self.experiments("sweep.toml") if e.seed in SEEDS}
        stored = (r for r in runs_of(self.experiments("sweep.toml"), runs) if r.rows and r.cell not in complete)
        best = [(c.experiment, c.lr) for c in select(stored)]
        keys = ("method", "partition", "topology", "inner", "every")
        shared = {
            k: v for k, v in best[0][0].to_dict().items() if len({json.dumps(e.to_dict()[k]) for e, _ in best}) == 1
        }
        shared = {k: v for k, v in shared.items() if k not in (*keys, "lr", "seed", "rounds")} | {"seed": SEEDS}
        varied = [k for k in best[0][0].to_dict() if k not in shared and k not in ("lr", "seed", "rounds")]
        points = [{**{k: e.to_dict()[k] for k in varied}, "lr": lr} for e, lr in best if lr is not None]
        lines = ["# Written by results/frontier.py: the step size that was best on the first seed, on four more.\n"]
        lines += [f"{k} = {_toml(v)}" for k, v in shared.items()]
        # An axis of numbers stands for the points: each override turns one into a method in a setting.
        lines += [f"lr = {_toml([float(k + 1) for k in range(len(points))])}", ""]
        for k, point in enumerate(points):
            settings = ", ".join(f"{key} = {_toml(value)}" for key, value in point.items())
            lines += ["[[override]]", f"when = {{lr = {float(k + 1)}}}", f"set = {{{settings}}}", ""]
        write_text(self.place / "seeds.toml", "\n".join(lines))
        return missing

    def measured(self, cells: Sequence[Cell]) -> dict[str, Any]:
        """Means over the seeds, bytes, and the mean paired difference from the base with its 95 % t-interval."""
        panels: dict[str, list[Cell]] = {}
        for cell in cells:
            panels.setdefault(getattr(cell.experiment, self.panel), []).append(cell)
        rows = []
        for name, members in panels.items():
            base = next((c for c in members if self._is_base(c.experiment)), None)
            for cell in members:
                rows.append({"panel": _split(name), **_row(cell, base)})
        return {"item": self.name, "title": self.title, "commands": self.commands, "cells": rows}

    def _is_base(self, experiment: Experiment) -> bool:
        return all(getattr(experiment, key) == value for key, value in self.base.items())

    def draw(self, told: dict[str, Any], path: Path) -> None:
        """Accuracy against the share of bytes, a chart for each panel; or against what is lost, a line for each."""
        figure = load_matplotlib().figure.Figure(layout="constrained")
        panels = list(dict.fromkeys(row["panel"] for row in told["cells"]))
        rows = [row for row in told["cells"] if row["mean"] and row["share"]]
        if self.panel == "method":
            figure.set_size_inches(7, 4.5)
            axes = figure.subplots()
            for panel in panels:
                members = [row for row in rows if row["panel"] == panel]
                places = [100 * _lost(row["topology"]) for row in members]
                axes.errorbar(places, *_accuracies(members), fmt="o-", capsize=3, label=panel)
            axes.set_xlabel("exchanges that are lost (%)")
            axes.set_ylabel("test accuracy (%)")
            axes.legend(fontsize=8)
        else:
            figure.set_size_inches(8.5, 5 * len(panels))
            charts = figure.subplots(len(panels), squeeze=False)[:, 0]
            for axes, panel in zip(charts, panels, strict=True):
                _draw_frontier(axes, [row for row in rows if row["panel"] == panel])
                axes.set_title(panel, fontsize=10)
                axes.set_xlabel("bytes, as a share of Momentum Tracking's")
                axes.set_ylabel("test accuracy (%)")
            figure.draw_without_rendering()  # settles the layout, which the labels must fit into
            for axes, panel in zip(charts, panels, strict=True):
                _write_labels(axes, [row for row in rows if row["panel"] == panel])
        save(figure, path)


COMPARISONS = [
    Comparison(
        "frontier", "Accuracy against bytes, LeNet on CIFAR-10, ring of 8", "partition", {"method": "momentum-tracking"}
    ),
    Comparison(
        "frontier-long",
        "Accuracy against bytes after 100 epochs, LeNet on CIFAR-10, ring of 8",
        "partition",
        {"method": "momentum-tracking"},
    ),
    Comparison(
        "frontier-draws",
        "Three draws of the nodes, after 100 epochs, LeNet on CIFAR-10, ring of 8",
        "partition",
        {"method": "momentum-tracking"},
    ),
    Comparison(
        "lossy", "Lossy links, LeNet on CIFAR-10, ring of 8, four classes per node", "method", {"topology": "ring"}
    ),
]


def _draw_frontier(axes: Any, rows: list[dict[str, Any]]) -> None:
    """A point for each row, and the best accuracy that so many bytes or fewer reach."""
    looks_of = looks(row["method"].partition(":")[0] for row in rows)
    for row, height, spread in zip(rows, *_accuracies(rows), strict=True):
        style = looks_of[row["method"].partition(":")[0]]
        marker = {"marker": matplotlib_marker(style), "markersize": 6, "color": style.colour}
        axes.errorbar(row["share"], height, spread or None, capsize=2, elinewidth=0.8, **marker)
    ascending = sorted((row["share"], row["mean"]) for row in rows)
    best = list(itertools.accumulate((100 * mean for _, mean in ascending), max))
    axes.step([share for share, _ in ascending], best, where="post", color="#BBBBBB", linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(ascending[0][0] / 1.3, 4)  # room for the last label
    axes.grid(alpha=0.25)


def _write_labels(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Every name at the nearest place around its point where it covers no point and no name; bars, where it must."""
    places = [(row["share"], 100 * row["mean"]) for row in rows]
    taken = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in axes.transData.transform(places)]
    spreads = [100 * (row["std"] or 0.0) for row in rows]
    ends = [[(x, y - spread), (x, y + spread)] for (x, y), spread in zip(places, spreads, strict=True)]
    bars = [Bbox(axes.transData.transform(pair)).padded(1) for pair in ends]
    font = {"fontsize": 7, "verticalalignment": "center", "textcoords": "offset points"}
    pixels = axes.figure.dpi / 72
    for row, place in zip(rows, places, strict=True):
        label = axes.annotate(row["label"], place, (0, 0), horizontalalignment="left", **font)
        at_point, found = label.get_window_extent(), []
        label.remove()
        for distance, turn in itertools.product(range(6, 200, 4), range(0, 360, 15)):
            dx, dy = distance * math.cos(math.radians(turn)), distance * math.sin(math.radians(turn))
            side, back = ("left", 0.0) if dx > 1 else ("right", 1.0) if dx < -1 else ("center", 0.5)
            box = at_point.translated(pixels * dx - back * at_point.width, pixels * dy)
            if axes.bbox.count_contains(box.corners()) == 4 and not box.count_overlaps(taken):
                found.append((distance + 20 * box.count_overlaps(bars), distance, (dx, dy), side, box))
        _, distance, offset, side, box = min(found, key=lambda entry: entry[0])
        taken.append(box)
        axes.annotate(row["label"], place, offset, horizontalalignment=side, **font)
        if distance > 10:
            line = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.5}
            axes.annotate("", place, offset, textcoords="offset points", arrowprops=line)


def _split(panel: str) -> str:
    """A partition in words; other panels, which are methods, stay as they are."""
    name, _, parameter = panel.partition("=")
    words = {"k-class:k": f"{parameter} classes per node", "dirichlet:alpha": f"Dirichlet({parameter})"}
    return words.get(name, panel)


def _lost(topology: str) -> float:
    """The share of exchanges that a graph loses."""
    return float(topology.rpartition("drop=")[2]) if "drop" in topology else 0.0


def _accuracies(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation in percent."""
    return [100 * row["mean"] for row in rows], [100 * (row["std"] or 0.0) for row in rows]


def _row(cell: Cell, base: Cell | None) -> dict[str, Any]:
    e = cell.experiment
    row = {
        "label": _label(e),
        **{key: getattr(e, key) for key in ("method", "topology", "inner", "every")},
        "lr": cell.lr,
        "mean": cell.mean,
        "std": cell.std,
        "seeds": cell.seeds,
        "bytes": _bytes(cell.runs[0]) if cell.runs else None,
        "missing": cell.missing,
        "runs": [run.directory.name for run in cell.runs],
    }
    pairs = _paired(cell, base) if base is not None else []
    half = t_quantile(len(pairs) - 1) * stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else None
    share = row["bytes"] / _bytes(base.runs[0]) if row["bytes"] and base is not None and base.runs else None
    return {**row, "share": share, "difference": fmean(pairs) if pairs else None, "interval": half}


def _label(experiment: Experiment) -> str:
    """The method with its compressor as one says it: MoTEF, 4 bits."""
    name, _, options = experiment.method.partition(":")
    title = find(name).facts.title
    if "bits=" in options:
        bits = options.partition("bits=")[2].partition(",")[0]
        title += f", {bits} {'bit' if bits == '1' else 'bits'}"
    if "share=" in options:
        title += f", top {float(options.partition('share=')[2]):.0%}"
    if "predict=true" in options:
        title += ", predicted"
    every = experiment.every if experiment.inner else options.partition("every=")[2].partition(",")[0]
    if not every:
        return title
    return f"{title}, {every} steps of SGD" if experiment.inner else f"{title}, K = {every}"


def _paired(cell: Cell, base: Cell) -> list[float]:
    """The differences in accuracy over the seeds that both have."""
    ours, theirs = ({run.experiment.seed: run.rows[-1]["accuracy"] for run in c.runs} for c in (cell, base))
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def _bytes(run: StoredRun) -> float:
    return float(run.rows[-1]["bytes_sent"])


def _toml(value: Any) -> str:
    return json.dumps(value)


def main() -> int:
    """Write the seeds of one comparison."""
    known = {c.name: c for c in COMPARISONS}
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        print(f"usage: python results/frontier.py {{{','.join(known)}}}", file=sys.stderr)
        return 2
    missing = known[sys.argv[1]].write_seeds()
    if missing:
        print(f"{len(missing)} runs of {sys.argv[1]}/sweep.toml are not finished; run this again after them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
