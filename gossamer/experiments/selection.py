"""Step-size selection as in the paper: per cell of a table, the step size with the best validation metric at the end.

Runs of one cell differ only in seed and step size. For each step size the final validation metric is averaged over
the seeds that all step sizes have, so a step size can be chosen on one seed and the other seeds run with it alone. The
runs with the best one give the mean and the standard deviation (over seeds, n - 1) of the test metric. "Best" is the
highest or the lowest, by the metric. An experiment counts once, however often it is stored. Runs on real nodes have
cells of their own.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from gossamer._common.formatting import ACCURACY, MetricFacts
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import StoredRun

ONE_STEP_SIZE = "only one step size was tried"

_BEST_FIRST = ("done", "diverged", "failed", "unfinished")


@dataclass(frozen=True)
class Candidate:
    """One step size of a cell."""

    lr: float
    runs: list[StoredRun]
    """Those that are done."""
    diverged: list[StoredRun] = field(default_factory=list)
    failed: list[StoredRun] = field(default_factory=list)
    unfinished: list[StoredRun] = field(default_factory=list)
    judged_on: frozenset[int] | None = None
    """The seeds over which the score is taken; None: all that are done."""

    @property
    def metric(self) -> MetricFacts:
        """What the runs measured."""
        runs = [*self.runs, *self.diverged, *self.failed, *self.unfinished]
        return runs[0].metric if runs else ACCURACY

    @property
    def tried(self) -> bool:
        """Whether any run with this step size is done or has diverged."""
        return bool(self.runs or self.diverged)

    @property
    def score(self) -> float:
        """The mean final validation metric over the seeds; the worst infinity if a run diverged."""
        if self.diverged or not self.runs:
            return self.metric.worst_value
        runs = [run for run in self.runs if self.judged_on is None or run.experiment.seed in self.judged_on]
        return fmean(_validation(run) for run in runs)

    @property
    def on_test_data(self) -> bool:
        """Whether a run has no validation set, so that the step size is chosen by the metric on test data."""
        return any(f"validation_{run.metric.name}" not in run.rows[-1] for run in self.runs)


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a method in a setting, with the step size chosen for it."""

    key: str
    """What its runs share: `StoredRun.cell`."""
    network: str
    """Likewise: `StoredRun.network`."""
    experiment: Experiment
    """One of its experiments, the chosen one's first where there is one."""
    label: str
    candidates: list[Candidate]
    """Every step size, ascending."""
    chosen: Candidate | None
    """The best one; None as long as no run is done, or if every step size diverged."""
    warnings: list[str]
    """What a reader of the figure must know, in sentences."""

    @property
    def settings(self) -> dict[str, Any]:
        """Those of `experiment`, and the network."""
        return {**self.experiment.settings, "network": self.network}

    @property
    def metric(self) -> MetricFacts:
        """What its runs measured, and whether higher is better."""
        return self.candidates[0].metric

    @property
    def lr(self) -> float | None:
        """The chosen step size."""
        return self.chosen.lr if self.chosen else None

    @property
    def runs(self) -> list[StoredRun]:
        """The runs of the chosen step size that are done, by seed."""
        return self.chosen.runs if self.chosen else []

    @property
    def missing(self) -> str:
        """Why there is no figure: diverged (every step size did), unfinished or failed; empty if there is one."""
        if self.chosen:
            return ""
        left = [c for c in self.candidates if not c.diverged]
        if not left:
            return "diverged"
        return "unfinished" if any(c.unfinished for c in left) else "failed"

    @property
    def figures(self) -> list[float]:
        """Their final metric on test data: the mean over nodes of each node's own model."""
        return [_figure(run) for run in self.runs]

    @property
    def mean(self) -> float | None:
        """The mean of the figures."""
        return fmean(self.figures) if self.runs else None

    def mean_over(self, seeds: frozenset[int]) -> float | None:
        """The mean of the figures with these seeds, all of which it has; of all, if none are given."""
        if not self.runs or not seeds:
            return self.mean
        return fmean(_figure(run) for run in self.runs if run.experiment.seed in seeds)

    @property
    def std(self) -> float | None:
        """Their standard deviation over the seeds (n - 1); None with a single one."""
        return stdev(self.figures) if len(self.runs) > 1 else None

    @property
    def seeds(self) -> int:
        """The number of seeds behind the mean."""
        return len(self.runs)

    @property
    def at_edge(self) -> bool:
        """Whether the chosen step size is the smallest or the largest of at least two that were tried."""
        tried = [c.lr for c in self.candidates if c.tried]
        return self.chosen is not None and len(tried) > 1 and self.chosen.lr in (tried[0], tried[-1])

    @property
    def score(self) -> float | None:
        """The validation metric by which the step size was chosen."""
        return self.chosen.score if self.chosen else None

    def count(self, status: str) -> int:
        """How many of all runs diverged, failed or are unfinished."""
        return sum(len(getattr(c, status)) for c in self.candidates)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "label": self.label,
            "network": self.network,
            "experiment": self.experiment.to_dict(),
            "lr": self.lr,
            "metric": self.metric.name,
            "higher_is_better": self.metric.higher_is_better,
            self.metric.name: self.mean,
            "std": self.std,
            "seeds": self.seeds,
            f"validation_{self.metric.name}": self.score,
            "at_edge": self.at_edge,
            "runs": [run.directory.name for run in self.runs],
            "candidates": [
                {"lr": c.lr, "score": c.score if math.isfinite(c.score) else None, "done": len(c.runs),
                 "diverged": len(c.diverged), "failed": len(c.failed), "unfinished": len(c.unfinished)}
                for c in self.candidates
            ],
            "warnings": self.warnings,
        }  # fmt: skip


def select(runs: Iterable[StoredRun]) -> list[Cell]:
    """The cells of these runs, in the order in which they come, each with its best step size."""
    groups: dict[tuple[Any, ...], list[StoredRun]] = {}
    for run in runs:
        # The settings too: a run whose files claim a cell that is not its own must not spoil the others' means.
        shared = (value for key, value in run.settings.items() if key not in ("method", "lr", "seed"))
        groups.setdefault((run.cell, *shared), []).append(run)
    return [_cell(group) for group in groups.values()]


def ranked(cells: Iterable[Cell]) -> list[Cell]:
    """The best test figure first, on the seeds that all have (see `seeds_note`); those without last."""
    found = list(cells)
    seeds = common_seeds(cell.runs for cell in found)
    return sorted(found, key=lambda c: math.inf if (mean := c.mean_over(seeds)) is None else -c.metric.goodness(mean))


def common_seeds(groups: Iterable[Sequence[StoredRun]]) -> frozenset[int]:
    """The seeds that occur in every group of runs that is not empty."""
    seeds = [_seeds_of(runs) for runs in groups if runs]
    return frozenset.intersection(*seeds) if seeds else frozenset()


def seeds_note(cells: Iterable[Cell]) -> str:
    """A sentence if the figures to be compared are over different seeds, else nothing."""
    groups = [cell.runs for cell in cells if cell.runs]
    if len({_seeds_of(runs) for runs in groups}) < 2:
        return ""
    seeds = common_seeds(groups)
    if not seeds:
        return "the methods have no seed in common; they are ranked on different seeds"
    written = ", ".join(map(str, sorted(seeds)))
    return f"the methods have different seeds; they are ranked on those that all have ({written}), not by their means"


def _cell(found: list[StoredRun]) -> Cell:
    runs, doubles = _once(found)
    step_sizes = sorted({run.experiment.lr for run in runs})
    candidates = [_candidate(lr, [r for r in runs if r.experiment.lr == lr]) for lr in step_sizes]
    shared = common_seeds(c.runs for c in candidates if not c.diverged)
    if shared:
        candidates = [replace(c, judged_on=shared) for c in candidates]
    # At equal scores the smaller step size, which is the more stable one.
    best = max(candidates, key=lambda c: (c.metric.goodness(c.score), -c.lr))
    chosen = best if best.score != best.metric.worst_value else None
    first = chosen.runs[0] if chosen else runs[0]
    cell = Cell(first.cell, first.network, first.experiment, first.label, candidates, chosen, [])
    cell.warnings.extend(f"{cell.label}: {sentence}" for sentence in [*_warnings(cell), *_about_doubles(doubles)])
    return cell


def _once(runs: list[StoredRun]) -> tuple[list[StoredRun], list[StoredRun]]:
    """One run for each step size and seed, the one that got furthest, and the runs left out."""
    kept: dict[tuple[float, int], StoredRun] = {}
    doubles = []
    for run in sorted(dict.fromkeys(runs), key=lambda r: _BEST_FIRST.index(_status(r))):
        if kept.setdefault((run.experiment.lr, run.experiment.seed), run) is not run:
            doubles.append(run)
    return list(kept.values()), doubles


def _candidate(lr: float, runs: list[StoredRun]) -> Candidate:
    groups: dict[str, list[StoredRun]] = {status: [] for status in _BEST_FIRST}
    for run in sorted(runs, key=lambda r: r.experiment.seed):
        groups[_status(run)].append(run)
    return Candidate(lr, groups["done"], groups["diverged"], groups["failed"], groups["unfinished"])


def _status(run: StoredRun) -> str:
    """The status of a run; one that is done but has lost its last figures counts as unfinished."""
    return "unfinished" if run.status == "done" and not _reaches_the_end(run) else run.status


def _reaches_the_end(run: StoredRun) -> bool:
    """Whether the last figures are those of the last round: `rounds`, or the whole number next to `epochs`."""
    if not run.rows:
        return False
    last, experiment = run.rows[-1], run.experiment
    if experiment.rounds:
        return bool(last["round"] >= experiment.rounds)
    if not last["round"]:
        return False
    per_epoch = last["round"] / last["epoch"]
    return bool(abs(last["round"] - experiment.epochs * per_epoch) < 0.5 + 1e-6)


def _warnings(cell: Cell) -> list[str]:
    found = []
    tried = [c.lr for c in cell.candidates if c.tried]
    if cell.chosen is not None:
        found += _about_choice(cell, cell.chosen, tried)
    elif cell.missing == "diverged":
        found.append(f"every step size tried diverged ({_list(tried)}); try smaller ones than {min(tried):g}")
    for status, word in (("diverged", "diverged"), ("failed", "failed"), ("unfinished", "not finished yet")):
        runs = [run for c in cell.candidates for run in getattr(c, status) if run.status == status]
        if not runs:
            continue
        where = f"at lr {_list(sorted({run.experiment.lr for run in runs}))}"
        reason = "" if status == "unfinished" else f": {runs[0].outcome['reason']}"
        found.append(f"{_runs(len(runs))} {word} {where}{reason}")
    lost = [run for c in cell.candidates for run in c.unfinished if run.status == "done"]
    if lost:
        again = "it" if len(lost) == 1 else "them"
        found.append(f"the last figures of {_runs(len(lost))} are lost; delete {_places(lost)} to make {again} again")
    return found


def _about_doubles(doubles: list[StoredRun]) -> list[str]:
    if not doubles:
        return []
    verb = "is" if len(doubles) == 1 else "are"
    return [f"{_runs(len(doubles))} {verb} stored more than once; left out: {_places(doubles)}"]


def _about_choice(cell: Cell, chosen: Candidate, tried: list[float]) -> list[str]:
    found = []
    if len(tried) == 1:
        found.append(f"{ONE_STEP_SIZE} ({chosen.lr:g})")
    elif cell.at_edge:
        end, beyond = ("smallest", "smaller") if chosen.lr == tried[0] else ("largest", "larger")
        found.append(
            f"the best step size, {chosen.lr:g}, is the {end} of those tried ({_list(tried)}); "
            f"a {beyond} one may be better still"
        )
    most = max(len(c.runs) + len(c.diverged) for c in cell.candidates)
    if len(chosen.runs) < most:
        found.append(f"the mean is over {_seeds(len(chosen.runs))}; other step sizes have {most}")
    rivals = [c for c in cell.candidates if c.runs and not c.diverged]
    if chosen.judged_on and any(len(c.runs) > len(chosen.judged_on) for c in rivals):
        found.append(f"the step size was chosen on {_seeds(len(chosen.judged_on))}, which all step sizes have")
    elif not chosen.judged_on:
        found.append("the step sizes have no seed in common; they were compared on different seeds")
    if any(c.on_test_data for c in cell.candidates):
        found.append(f"there is no validation set, so the step size was chosen by test {cell.metric.name}")
    return found


def _figure(run: StoredRun) -> float:
    return float(run.rows[-1][run.metric.name])


def _validation(run: StoredRun) -> float:
    last, name = run.rows[-1], run.metric.name
    score = last[f"validation_{name}"] if f"validation_{name}" in last else last[name]
    return run.metric.worst_value if score is None or math.isnan(score) else float(score)


def _seeds_of(runs: Sequence[StoredRun]) -> frozenset[int]:
    return frozenset(run.experiment.seed for run in runs)


def _places(runs: Sequence[StoredRun]) -> str:
    return ", ".join(str(run.directory) for run in runs)


def _list(numbers: list[float]) -> str:
    return ", ".join(f"{n:g}" for n in numbers)


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"
