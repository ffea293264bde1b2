"""Stored runs, compared: the plain values of which tables, charts and figures are made."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer._common.checks import normalized, split
from gossamer._common.formatting import ACCURACY, MetricFacts, Row
from gossamer.errors import InputError
from gossamer.experiments.selection import Candidate, Cell, ranked, seeds_note, select
from gossamer.experiments.store import StoredRun
from gossamer.report.conclusion import Conclusion, Contender, Setting, compare_settings, conclude, summarize
from gossamer.report.style import Look, looks

NOT_SETTINGS = ("method", "lr", "seed")
"""What may vary within a panel; a difference in anything else makes another panel."""
_GRAPH = ("topology", "weights")
_TASK = ("dataset", "loss", "metric", "evaluate")
"""Figures of panels that differ in one of these are not compared with each other."""

FloatArray = NDArray[np.float64]

MOST_POINTS = 200
"""Curves with more evaluations are thinned out to this many points."""

_COLUMNS: dict[str, Callable[[Row, str], float | None]] = {
    "epoch": lambda row, metric: row.get("epoch"),
    "bytes": lambda row, metric: row.get("bytes_sent"),
    "seconds": lambda row, metric: row.get("seconds"),
    "metric": lambda row, metric: row.get(metric),
    "averaged": lambda row, metric: row.get(f"averaged_{metric}"),
    "train_loss": lambda row, metric: row.get("train_loss"),
    "node_spread": lambda row, metric: (
        row[f"{metric}_max"] - row[f"{metric}_min"] if {f"{metric}_max", f"{metric}_min"} <= row.keys() else None
    ),
    "consensus_distance": lambda row, metric: row.get("consensus_distance"),
    "tracking_error": lambda row, metric: row.get("tracking_error"),
}
"""What is read from a row of a run that measured `metric`."""


@dataclass(frozen=True)
class Band:
    """One metric over the course of training: mean and sample standard deviation over seeds; nan where missing."""

    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class MethodResult:
    """One method in one panel, with the step size that was chosen for it."""

    cell: Cell
    own_settings: dict[str, Any]
    """Graph and weights where they differ from the panel's: some methods need their own."""

    @property
    def method(self) -> str:
        """The method as legends name it."""
        return self.cell.label

    @property
    def method_name(self) -> str:
        """The method's name without its hyper-parameters, as `style.BUILT_IN` writes it."""
        return normalized(split(self.cell.experiment.method)[0])

    @property
    def title(self) -> str:
        """The name in tables, with the graph if it is not the panel's."""
        on = ", ".join(map(str, self.own_settings.values()))
        return f"{self.method} on {on}" if on else self.method

    @property
    def metric(self) -> MetricFacts:
        """What was measured, and whether higher is better."""
        return self.cell.metric

    @property
    def mean(self) -> float:
        """The metric on test data, averaged over the seeds; nan if no run is done."""
        return math.nan if self.cell.mean is None else self.cell.mean

    @property
    def std(self) -> float:
        """Its standard deviation over the seeds; nan with fewer than two."""
        return math.nan if self.cell.std is None else self.cell.std

    @property
    def runs(self) -> list[StoredRun]:
        """The runs behind the curves: those done with the chosen step size, else those that have any rows."""
        return self._source.runs or [r for r in _all(self._source) if r.rows]

    @property
    def wanted(self) -> int:
        """How many seeds were started with that step size."""
        return len(_all(self._source))

    @cached_property
    def curves(self) -> dict[str, Band]:
        """Every metric over the course of training."""
        return average([run.rows for run in self.runs], bool(self._source.runs), self.metric.name)

    @cached_property
    def node_figures(self) -> list[float]:
        """The final metric of every node, averaged over the seeds; empty if no run is done."""
        return node_figures([run.rows for run in self.cell.runs], self.metric.name)

    @property
    def step_sizes(self) -> list[tuple[float, float]]:
        """Every step size with finished runs, and its metric on validation data."""
        return [(c.lr, c.score) for c in self.cell.candidates if math.isfinite(c.score)]

    @property
    def missing(self) -> str:
        """Why there is no figure; empty if there is one."""
        return self.cell.missing

    @property
    def worst_node(self) -> float:
        """The worst final figure of any node with any seed; nan where it was not measured."""
        found = (self.metric.worst(run.rows[-1]) for run in self.cell.runs)
        return self.metric.worst_of([math.nan if value is None else value for value in found])

    def last(self, column: str) -> float:
        """A metric at the end, averaged over the seeds; nan where it was not measured or no run is done."""
        return at_the_end([run.rows for run in self.cell.runs], column, self.metric.name)

    @property
    def _source(self) -> Candidate:
        return self.cell.chosen or max(self.cell.candidates, key=lambda c: max(len(r.rows) for r in _all(c)))


@dataclass(frozen=True)
class ComparisonPanel:
    """Methods on the same data, graph and model, best first."""

    name: str
    """The settings in which it differs from the other panels."""
    key: str
    """The same, fit for a file name."""
    settings: dict[str, Any]
    entries: tuple[MethodResult, ...]

    @property
    def metric(self) -> MetricFacts:
        """What the methods are compared by, and whether higher is better."""
        return self.entries[0].metric

    @cached_property
    def about(self) -> dict[str, Any]:
        """What run.json says of the panel's first run: graph, partition, environment."""
        entry = next(e for e in self.entries if not e.own_settings)
        first = min(entry.cell.candidates[0].runs or _all(entry.cell.candidates[0]), key=lambda r: r.experiment.seed)
        return first.about

    @property
    def notes(self) -> list[str]:
        """Warnings about the choice of step sizes; methods with the same warning share a sentence."""
        groups: dict[str, list[str]] = {}
        for entry in self.entries:
            for warning in entry.cell.warnings:
                groups.setdefault(warning.removeprefix(f"{entry.method}: "), []).append(entry.title)
        seeds = seeds_note(entry.cell for entry in self.entries)
        told = [f"{seeds.capitalize()}."] if seeds else []
        return told + [
            f"{'All methods' if len(names) == len(self.entries) > 1 else ', '.join(names)}: {warning.rstrip('.')}."
            for warning, names in groups.items()
        ]

    @cached_property
    def contenders(self) -> list[Contender]:
        """The methods with their figures by seed."""
        found = []
        for entry in self.entries:
            by_seed = zip((run.experiment.seed for run in entry.cell.runs), entry.cell.figures, strict=True)
            finite = {seed: figure for seed, figure in by_seed if math.isfinite(figure)}
            found.append(Contender(entry.title, finite, entry.missing))
        return found

    @cached_property
    def conclusion(self) -> Conclusion:
        """Who is ahead, as far as the seeds support it."""
        return conclude(self.contenders, self.metric)

    @property
    def best(self) -> MethodResult | None:
        """The method that is ahead of every other one over the seeds, if there is one."""
        found = self.conclusion
        return next((e for e in self.entries if found.clear and e.title == found.best), None)


@dataclass(frozen=True)
class Comparison:
    """Everything that a report shows."""

    runs: tuple[StoredRun, ...]
    cells: tuple[Cell, ...]
    """Every method in every setting at its chosen step size."""
    panels: tuple[ComparisonPanel, ...]

    @property
    def methods(self) -> list[str]:
        """All methods, by rank averaged over the panels, the best first."""
        ranks: dict[str, list[int]] = {}
        for panel in self.panels:
            for rank, entry in enumerate(panel.entries):
                ranks.setdefault(entry.method, []).append(rank)
        return sorted(ranks, key=lambda method: fmean(ranks[method]))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The look of every method: the built-in one's if its hyper-parameters are the defaults, else its own."""
        names: dict[str, str] = {}
        for entry in (entry for panel in self.panels for entry in panel.entries):
            _, parameters = split(entry.cell.experiment.method)
            usual = not (parameters and entry.method.endswith(")"))
            names[entry.method] = entry.method_name if usual else entry.method
        chosen = looks(names.values())
        return {method: chosen[names[method]] for method in self.methods}

    @cached_property
    def conclusion(self) -> str:
        """What the panels say together; if they differ in one setting only, also who depends on it."""
        first, *others = (panel.settings for panel in self.panels)
        differing = [key for key in first if any(settings[key] != first[key] for settings in others)]
        if len(differing) != 1 or differing[0] in _TASK:
            found = {panel.name.removesuffix(f": {panel.metric.title}"): panel.conclusion for panel in self.panels}
            return summarize(found, self._measured)
        settings = [Setting(_said(panel, differing[0]), panel.contenders) for panel in self.panels]
        return compare_settings(settings, self.panels[0].metric)

    @property
    def _measured(self) -> str:
        """The metric of all panels and its direction, or those of each dataset, or all that the panels' names tell."""
        if len(self.metrics) == 1:
            return self.metrics[0].described
        pairs = dict.fromkeys((panel.settings["dataset"], panel.metric) for panel in self.panels)
        if len(dict(pairs)) < len(pairs):
            return "; ".join(metric.described for metric in self.metrics)
        return "; ".join(f"{dataset}: {metric.described}" for dataset, metric in pairs)

    @property
    def metrics(self) -> list[MetricFacts]:
        """What the panels are compared by, each once."""
        return list(dict.fromkeys(panel.metric for panel in self.panels))

    @cached_property
    def values(self) -> dict[str, list[Any]]:
        """Every setting and all its values; methods by their labels."""
        found: dict[str, dict[Any, None]] = {key: {} for key in self.runs[0].settings}
        for run in self.runs:
            for key, value in run.settings.items():
                found[key][value] = None
        return {key: self.methods if key == "method" else sorted(values, key=natural) for key, values in found.items()}

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that all runs share; of epochs and rounds only the one in effect."""
        void = {"epochs" if run.experiment.rounds else "rounds" for run in self.runs}
        void = void if len(void) == 1 else set()
        return {key: values[0] for key, values in self.values.items() if len(values) == 1 and key not in void}

    @property
    def varied(self) -> dict[str, list[Any]]:
        """The settings that differ between runs, with their values."""
        return {key: values for key, values in self.values.items() if len(values) > 1}

    @cached_property
    def environments(self) -> dict[str, list[str]]:
        """Versions and machines, and all values of each."""
        found: dict[str, dict[str, None]] = {}
        for run in self.runs:
            for key, value in run.about.get("environment", {}).items():
                if value not in (None, ""):
                    found.setdefault(key, {})[str(value)] = None
        return {key: list(values) for key, values in found.items()}

    @cached_property
    def notes(self) -> list[str]:
        """How many runs have no result."""
        counts = {status: sum(r.status == status for r in self.runs) for status in ("unfinished", "failed", "diverged")}
        words = {"unfinished": "not finished", "failed": "failed", "diverged": "diverged"}
        told = [f"{n} of {len(self.runs)} runs {words[status]}" for status, n in counts.items() if n]
        figures = "Accuracies" if self.metrics == [ACCURACY] else "Figures"
        return [f"{', '.join(told)}. {figures} are those of finished runs."] if told else []


def collect(runs: Iterable[StoredRun] | Comparison) -> Comparison:
    """Compare runs: panels of equal settings, in each the methods with their chosen step sizes.

    A comparison is returned as it is, so that one can be made once and then written as page, figures and tables.
    """
    if isinstance(runs, Comparison):
        return runs
    found = tuple(dict.fromkeys(runs))
    if not found:
        raise InputError("There are no runs to report on; make some with gossamer run, compare or sweep.")
    cells = tuple(select(found))
    groups = _joined(_by_settings(cells))
    groups.sort(key=lambda group: [natural(value) for value in group[0].values()])
    varied = [key for key in groups[0][0] if len({json.dumps(settings[key]) for settings, _ in groups}) > 1]
    differing = list(varied)
    # The model, the loss and what else follows from the dataset need not be named beside it.
    for key in ("model", "loss", "metric", "evaluate", "partition", "batch_size"):
        follows = len({(s["dataset"], s[key]) for s, _ in groups}) == len({s["dataset"] for s, _ in groups})
        if follows and len(varied) > 1:
            varied = [other for other in varied if other != key]
    panels: list[ComparisonPanel] = []
    for settings, entries in groups:
        name = _name(settings, varied)
        key = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "panel"
        if any(panel.key == key for panel in panels):
            key = f"{key}-{len(panels)}"
        if "metric" in differing and "metric" not in varied:
            name += f": {entries[0].metric.title}"
        order = {id(cell): rank for rank, cell in enumerate(ranked(e.cell for e in entries))}
        panels.append(ComparisonPanel(name, key, settings, tuple(sorted(entries, key=lambda e: order[id(e.cell)]))))
    return Comparison(found, cells, tuple(panels))


def _by_settings(cells: Sequence[Cell]) -> list[tuple[dict[str, Any], list[MethodResult]]]:
    groups: dict[str, tuple[dict[str, Any], list[MethodResult]]] = {}
    for cell in cells:
        settings = {k: v for k, v in cell.settings.items() if k not in NOT_SETTINGS}
        groups.setdefault(json.dumps(settings), (settings, []))[1].append(MethodResult(cell, {}))
    return list(groups.values())


def _joined(groups: list[tuple[dict[str, Any], list[MethodResult]]]) -> list[tuple[dict[str, Any], list[MethodResult]]]:
    """Methods that ran only on a graph or with weights of their own join the others' panel."""
    kept: list[tuple[dict[str, Any], list[MethodResult]]] = []
    for settings, entries in sorted(groups, key=lambda group: -len(group[1])):
        for host_settings, host in kept:
            own = {k: settings[k] for k in settings if settings[k] != host_settings[k]}
            if set(own) <= set(_GRAPH) and not {e.method for e in entries} & {e.method for e in host}:
                host += [MethodResult(entry.cell, own) for entry in entries]
                break
        else:
            kept.append((settings, list(entries)))
    return kept


def _name(settings: dict[str, Any], varied: list[str]) -> str:
    keys = varied or ["dataset", "model", "partition", "topology"]
    return " · ".join(_setting(settings, key) for key in keys)


def _setting(settings: dict[str, Any], key: str) -> str:
    if key == "network":
        return "simulation" if settings[key] == "simulated" else f"{settings['nodes']} {settings[key]}"
    value = settings[key]
    return value if isinstance(value, str) else f"{key.replace('_', ' ')} {value:g}"


def _said(panel: ComparisonPanel, key: str) -> str:
    """The setting of a panel in a sentence."""
    match = re.fullmatch(r"k-class:k=(\d+)(,draw=\w+)?", str(panel.settings[key])) if key == "partition" else None
    return f"{match[1]} class{'' if match[1] == '1' else 'es'} per node" if match else panel.name


def _all(candidate: Candidate) -> list[StoredRun]:
    return [*candidate.runs, *candidate.diverged, *candidate.failed, *candidate.unfinished]


def natural(value: Any) -> tuple[Any, ...]:
    """A sort key that orders numbers by value, also within words: k=2 before k=10."""
    parts = re.split(r"(\d+(?:\.\d+)?)", str(value))
    return tuple((0, float(part), "") if k % 2 else (1, 0.0, part) for k, part in enumerate(parts))


def average(runs: Sequence[Sequence[Row]], finished: bool = True, metric: str = "accuracy") -> dict[str, Band]:
    """Every column's band over runs that differ in their seed.

    The partition depends on the seed, so epochs differ in their number of rounds, and evaluations do not coincide.
    Every run is therefore interpolated linearly at the evaluations of the run that ends first: finished runs at the
    same fraction of their length, others at the same epoch, as far as the shortest goes.
    """
    kept = [rows for rows in runs if rows]
    along = [_places(rows, finished) for rows in kept]
    common = _thinned(min(along, key=lambda places: places[-1], default=np.empty(0)))
    pairs = list(zip(along, kept, strict=True))
    return {
        name: _band([np.interp(common, places, _numbers(rows, value, metric)) for places, rows in pairs])
        for name, value in _COLUMNS.items()
    }


def at_the_end(runs: Sequence[Sequence[Row]], column: str, metric: str = "accuracy") -> float:
    """A column's last value of every run, averaged over the runs; nan where one has none."""
    last = [_numbers(rows[-1:], _COLUMNS[column], metric)[0] for rows in runs if rows]
    return float(np.mean(last)) if last else math.nan


def node_figures(runs: Sequence[Sequence[Row]], metric: str = "accuracy") -> list[float]:
    """The final metric of every node, averaged over the runs in which it is there at the end; nan if in none."""
    found: dict[int, list[float]] = {}
    for row in (rows[-1] for rows in runs if rows and rows[-1].get(f"node_{metric}")):
        values = row[f"node_{metric}"]
        for node, value in zip(row.get("present", range(len(values))), values, strict=True):
            found.setdefault(node, []).append(value)
    return [fmean(found[node]) if node in found else math.nan for node in range(max(found, default=-1) + 1)]


def tested_on(panel: ComparisonPanel) -> str:
    """What the figures were measured on, as part of a sentence."""
    return "the common test set" if panel.settings["evaluate"] == "common" else "its node's own test part"


def epoch_note(panel: ComparisonPanel) -> str:
    """What an epoch is where nodes hold different numbers of samples; empty where they hold the same."""
    counts = panel.about.get("partition", {}).get("counts", [])
    sizes, batch = [sum(row) for row in counts], panel.settings["batch_size"]
    if len(set(sizes)) < 2:
        return ""
    rounds = -(-sum(sizes) // (len(sizes) * batch))
    return (
        f"The nodes hold {min(sizes):,} to {max(sizes):,} samples. An epoch is {rounds:,} "
        f"round{'' if rounds == 1 else 's'} for all of them, the mean number of samples over the batch size: in it an "
        f"average node passes once over its own data, a smaller one more often, a larger one less."
    )


def part_note(runs: Iterable[Sequence[Row]]) -> str:
    """A sentence if finished runs were evaluated on a part of the test set before their end, else nothing."""
    sizes = {row["test_samples"] for rows in runs for row in rows if "test_samples" in row}
    if len(sizes) < 2:
        return ""
    return f"Before the end on a random part of the test set ({min(sizes):,} of {max(sizes):,} samples)."


def _places(rows: Sequence[Row], finished: bool) -> FloatArray:
    """Where the evaluations are: the fraction of the run, or the epoch."""
    epochs = np.array([row["epoch"] for row in rows], dtype=float)
    # Rounded, so that places which differ only in the last bit coincide.
    return np.round(epochs / (epochs[-1] or 1.0), 12) if finished else epochs


def _thinned(places: FloatArray) -> FloatArray:
    chosen = np.linspace(0, len(places) - 1, min(len(places), MOST_POINTS)).round().astype(int)
    return np.take(places, chosen)


def _numbers(rows: Sequence[Row], value: Callable[[Row, str], float | None], metric: str) -> FloatArray:
    return np.array([value(row, metric) for row in rows], dtype=float)


def _band(values: list[FloatArray]) -> Band:
    if not values:
        return Band([], [])
    table = np.array(values)
    with np.errstate(invalid="ignore"):
        mean = table.mean(axis=0)
        std = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(len(mean))
    return Band(mean.tolist(), std.tolist())
