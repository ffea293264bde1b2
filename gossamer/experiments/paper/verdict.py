"""Measured accuracies beside the published ones: differences in points, and whether the methods rank alike."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Any

from gossamer import methods
from gossamer.data import partition
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.paper.published import PublishedCell, cells
from gossamer.experiments.paper.recipes import PaperPlan, PaperRecipe, PlannedRun, Scale
from gossamer.experiments.selection import Cell, common_seeds, seeds_note, select
from gossamer.experiments.store import StoredRun


@dataclass(frozen=True)
class PaperLine:
    """One method in one panel; accuracies are in percent, None where there is none."""

    method: str
    label: str
    mean: float | None
    std: float | None
    lr: float | None
    seeds: int
    diverged: bool
    """Whether every step size diverged: the worst accuracy there is."""
    paper_mean: float | None
    paper_std: float | None
    warnings: tuple[str, ...] = ()
    common_mean: float | None = None
    """The mean over the seeds that all compared methods of the panel have, where their seeds differ."""

    @property
    def difference(self) -> float | None:
        """Measured minus published, in points."""
        return None if self.mean is None or self.paper_mean is None else self.mean - self.paper_mean

    @property
    def score(self) -> float | None:
        """What the ranking goes by; None: nothing was measured."""
        if self.diverged:
            return -math.inf
        return self.mean if self.common_mean is None else self.common_mean


@dataclass(frozen=True)
class Ranking:
    """Whether the measured order of methods is the paper's, over all pairs to which the paper gives different means."""

    compared: int
    """Methods that have both a measured and a published accuracy."""
    methods: int
    """All methods of the panel."""
    pairs: int
    agreeing: int
    clear_pairs: int
    """Pairs whose published means are further apart than their standard deviations, both published, together."""
    clear_agreeing: int
    tau: float | None
    """Kendall's: (agreeing - opposite) / pairs."""
    best: str
    """The method that measured best, empty if every one diverged, and those that the paper prints as best."""
    paper_best: tuple[str, ...]

    @property
    def same_order(self) -> bool:
        """Whether every pair agrees."""
        return self.pairs > 0 and self.agreeing == self.pairs

    @property
    def same_winner(self) -> bool:
        """Whether the best method is (one of) the paper's."""
        return self.best in self.paper_best

    @property
    def sentence(self) -> str:
        """A summary in one sentence."""
        if not self.pairs:
            return "ranking: no two methods to compare with the paper"
        start = "ranking" if self.compared == self.methods else f"ranking of {self.compared} of {self.methods} methods"
        if self.same_order:
            return f"{start}: same order as in the paper"
        if not self.best:
            return f"{start}: no winner, every method diverged"
        winner = "same winner" if self.same_winner else f"winner {self.best} (paper: {' and '.join(self.paper_best)})"
        text = f"{start}: {winner}; {self.agreeing} of {self.pairs} pairs in the paper's order, tau {self.tau:.2f}"
        if self.clear_pairs:
            text += f"; {self.clear_agreeing} of the {self.clear_pairs} pairs that the paper tells apart clearly"
        return text


@dataclass(frozen=True)
class PaperPanel:
    """Methods that are compared with each other."""

    title: str
    lines: tuple[PaperLine, ...]
    stand_in: str = ""
    """What was trained instead of what the paper trained, as in "digits stand in": then there is no comparison."""
    warnings: tuple[str, ...] = ()

    @property
    def ranking(self) -> Ranking:
        """Measured against published order."""
        return rank(self.lines)

    @property
    def sentence(self) -> str:
        """How the ranking compares with the paper's, or why there is no comparison."""
        return f"no comparison: {self.stand_in}" if self.stand_in else self.ranking.sentence


@dataclass(frozen=True)
class Verdict:
    """A table or figure of the paper beside its reproduction."""

    panels: tuple[PaperPanel, ...]
    averages: tuple[PaperPanel, ...] = ()
    """The panels averaged over the recipe's `average`, over the values for which every method has an accuracy."""

    @property
    def sentence(self) -> str:
        """How often the rankings agree."""
        rankings = [p.ranking for p in self.panels if p.ranking.pairs]
        if not rankings:
            stand_ins = dict.fromkeys(panel.stand_in for panel in self.panels if panel.stand_in)
            return f"No comparison: {' and '.join(stand_ins)}." if stand_ins else "Nothing to rank yet."
        pairs, clear = sum(r.pairs for r in rankings), sum(r.clear_pairs for r in rankings)
        panels = f"{len(rankings)} panel{'s' if len(rankings) > 1 else ''}"
        text = (
            f"Rankings in {panels}: same winner in {sum(r.same_winner for r in rankings)}, same order in "
            f"{sum(r.same_order for r in rankings)}; {sum(r.agreeing for r in rankings)} of {pairs} pairs of methods "
            "in the paper's order"
        )
        if clear:
            text += (
                f", {sum(r.clear_agreeing for r in rankings)} of the {clear} that the paper tells apart by more than "
                "the standard deviations"
            )
        return f"{text}."

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures must know: each sentence once, with the methods or panels it applies to."""
        where: dict[str, list[str]] = {}
        for panel in self.panels:
            for line in panel.lines:
                for warning in line.warnings:
                    place = line.label if len(self.panels) == 1 else f"{line.label} in {panel.title}"
                    where.setdefault(warning, []).append(place)
        total = sum(len(panel.lines) for panel in self.panels)
        found = [f"{_places(places, total)}: {warning}" for warning, places in where.items()]
        return found + [f"{panel.title}: {warning}" for panel in self.panels for warning in panel.warnings]

    def to_json(self) -> dict[str, Any]:
        """Plain words and numbers."""
        return {
            "summary": self.sentence,
            "panels": [_panel_json(p) for p in self.panels],
            "averages": [_panel_json(p) for p in self.averages],
            "warnings": self.warnings,
        }


def judge(recipe: PaperRecipe, planned: Sequence[PlannedRun], measured: Iterable[Cell]) -> Verdict:
    """Compare what was measured for the planned experiments with the recipe's table of the paper."""
    by_cell = {cell.key: cell for cell in measured}
    groups: dict[tuple[str, ...], dict[str, PlannedRun]] = {}
    for p in planned:
        groups.setdefault(_words(p.asked, recipe.panels), {}).setdefault(p.asked.cell, p)
    panels = {key: _panel(", ".join(key), list(group.values()), by_cell, recipe) for key, group in groups.items()}
    averages: tuple[PaperPanel, ...] = ()
    if recipe.average and not any(panel.stand_in for panel in panels.values()):
        lines = {key: panel.lines for key, panel in panels.items()}
        averages = _averages(lines, recipe.panels.index(recipe.average))
    return Verdict(tuple(panels.values()), averages)


def published(table: int | None, experiment: Experiment) -> PublishedCell | None:
    """The paper's accuracy for an experiment, if that table has one."""
    split = partition.get(experiment.partition, experiment.nodes)
    method = repr(methods.get(experiment.method))
    for cell in cells(table=table) if table is not None else []:
        if (
            (cell.dataset, cell.model, cell.k, cell.alpha)
            == (experiment.dataset, experiment.model_name, getattr(split, "k", None), getattr(split, "alpha", None))
            and cell.topology in (None, experiment.topology)
            and repr(methods.get(cell.method, **cell.hyperparameters)) == method
        ):
            return cell
    return None


def rank(lines: Sequence[PaperLine]) -> Ranking:
    """Compare the measured order with the published one."""
    known = [(line, line.score, line.paper_mean) for line in lines]
    both = [(line, score, paper) for line, score, paper in known if score is not None and paper is not None]
    pairs = agreeing = opposite = clear = clear_agreeing = 0
    for (a, score_a, paper_a), (b, score_b, paper_b) in combinations(both, 2):
        if paper_a == paper_b:
            continue
        agrees = (score_a > score_b) if paper_a > paper_b else (score_a < score_b)
        pairs += 1
        agreeing += agrees
        opposite += not agrees and score_a != score_b
        if a.paper_std is not None and b.paper_std is not None and abs(paper_a - paper_b) > a.paper_std + b.paper_std:
            clear += 1
            clear_agreeing += agrees
    top = max((paper for _, _, paper in both), default=None)
    finite = [entry for entry in both if entry[1] > -math.inf]
    best = max(finite, key=lambda entry: entry[1], default=None)
    return Ranking(
        compared=len(both),
        methods=len(lines),
        pairs=pairs,
        agreeing=agreeing,
        clear_pairs=clear,
        clear_agreeing=clear_agreeing,
        tau=(agreeing - opposite) / pairs if pairs else None,
        best=best[0].label if best else "",
        paper_best=tuple(line.label for line, _, paper in both if paper == top),
    )


def _panel(words: str, group: Sequence[PlannedRun], by_cell: Mapping[str, Cell], recipe: PaperRecipe) -> PaperPanel:
    stand_in, in_place = _stand_in(group)
    found = [(p.asked, by_cell.get(p.made.cell), None if stand_in else published(recipe.table, p.asked)) for p in group]
    compared = [cell for _, cell, paper in found if cell is not None and paper is not None]
    note = seeds_note(compared)
    seeds = common_seeds(cell.runs for cell in compared) if note else frozenset()
    lines = tuple(_line(asked, cell, paper, seeds) for asked, cell, paper in found)
    return PaperPanel(f"{words}{in_place}", lines, stand_in, (note,) if note else ())


def _stand_in(group: Sequence[PlannedRun]) -> tuple[str, str]:
    """The stand-in for what the paper trained, as a sentence and as a part of a title; empty if there is none."""
    for p in group:
        if p.asked.dataset != p.made.dataset:
            return f"{p.made.dataset} stand in", f" ({p.made.dataset} in place of {p.asked.dataset})"
        if p.asked.model_name != p.made.model_name:
            return f"{p.made.model_name} stands in", f" ({p.made.model_name} in place of {p.asked.model_name})"
    return "", ""


def _line(asked: Experiment, cell: Cell | None, paper: PublishedCell | None, seeds: frozenset[int]) -> PaperLine:
    return PaperLine(
        method=asked.method,
        label=asked.label,
        mean=_percent(cell.mean) if cell else None,
        std=_percent(cell.std) if cell else None,
        lr=cell.lr if cell else None,
        seeds=cell.seeds if cell else 0,
        diverged=cell is not None and cell.missing == "diverged",
        paper_mean=paper.mean if paper else None,
        paper_std=paper.std if paper else None,
        warnings=tuple(w.removeprefix(f"{cell.label}: ") for w in cell.warnings) if cell else ("no run has been made",),
        common_mean=_percent(cell.mean_over(seeds)) if cell and paper and seeds else None,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _averages(lines: Mapping[tuple[str, ...], Sequence[PaperLine]], position: int) -> tuple[PaperPanel, ...]:
    """Panels that differ at `position` of their keys only become one: the mean of each method over them."""
    groups: dict[tuple[str, ...], list[tuple[str, Sequence[PaperLine]]]] = {}
    for key, group in lines.items():
        groups.setdefault((*key[:position], *key[position + 1 :]), []).append((key[position], group))
    found = []
    for rest, members in groups.items():
        whole = [(name, group) for name, group in members if all(line.mean is not None for line in group)]
        if len(whole) < 2:
            continue
        averaged = [_mean_line(same) for same in zip(*(group for _, group in whole), strict=True)]
        found.append(
            PaperPanel(f"average of {', '.join(name for name, _ in whole)}, {', '.join(rest)}", tuple(averaged))
        )
    return tuple(found)


def _mean_line(same: Sequence[PaperLine]) -> PaperLine:
    papers = [line.paper_mean for line in same if line.paper_mean is not None]
    scores = [line.score for line in same if line.score is not None]
    return PaperLine(
        method=same[0].method,
        label=same[0].label,
        mean=fmean(line.mean for line in same if line.mean is not None),
        std=None,
        lr=None,
        seeds=min(line.seeds for line in same),
        diverged=False,
        paper_mean=fmean(papers) if len(papers) == len(same) else None,
        paper_std=None,
        common_mean=fmean(scores) if any(line.common_mean is not None for line in same) else None,
    )


def _words(experiment: Experiment, keys: Sequence[str]) -> tuple[str, ...]:
    """The values of the keys, as a title has them: "k = 4" for a partition."""
    split = partition.get(experiment.partition, experiment.nodes)
    parameter = next((f"{name} = {getattr(split, name):g}" for name in ("k", "alpha") if hasattr(split, name)), "iid")
    values = {**experiment.settings, "partition": parameter}
    return tuple(str(values[key]) for key in keys)


def _places(places: Sequence[str], total: int) -> str:
    if len(places) == total:
        return "everywhere"
    return "; ".join(places) if len(places) < 4 else f"{'; '.join(places[:3])} and {len(places) - 3} more"


def _panel_json(panel: PaperPanel) -> dict[str, Any]:
    ranking = panel.ranking
    return {
        "title": panel.title,
        "methods": [{**asdict(line), "difference": line.difference} for line in panel.lines],
        "ranking": {
            **asdict(ranking),
            "same_order": ranking.same_order,
            "same_winner": ranking.same_winner,
            "sentence": panel.sentence,
        },
    }


@dataclass(frozen=True)
class Measurement:
    """A recipe, its plan, the runs that there are, and the comparison with the paper."""

    recipe: PaperRecipe
    plan: PaperPlan
    runs: Sequence[StoredRun]
    cells: Sequence[Cell]
    verdict: Verdict

    def to_json(self, scale: Scale, commands: Sequence[str]) -> dict[str, Any]:
        """The content of measured.json. `commands` are those that make the runs."""
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


def measure(
    recipe: PaperRecipe, plan: PaperPlan, runs: Sequence[StoredRun], cells: Sequence[Cell] | None = None
) -> Measurement:
    """Compare the accuracies of a plan's runs with the paper's. `cells` are the chosen step sizes, if known."""
    cells = select(runs) if cells is None else cells
    return Measurement(recipe, plan, runs, cells, judge(recipe, plan.planned, cells))
