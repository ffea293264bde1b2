"""What was measured beside what the paper printed: differences in points, and whether the methods rank alike."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from gossamer import methods
from gossamer.data import partition
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.paper.plan import Planned
from gossamer.experiments.paper.published import PublishedCell, cells
from gossamer.experiments.paper.recipes import Recipe
from gossamer.experiments.selection import Cell


@dataclass(frozen=True)
class Line:
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

    @property
    def difference(self) -> float | None:
        """Measured minus published, in points."""
        return None if self.mean is None or self.paper_mean is None else self.mean - self.paper_mean

    @property
    def score(self) -> float | None:
        """What the ranking goes by; None: nothing was measured."""
        return -math.inf if self.diverged else self.mean


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
    """Pairs whose published means are further apart than their standard deviations together."""
    clear_agreeing: int
    tau: float | None
    """Kendall's: (agreeing - opposite) / pairs."""
    best: str
    """The method that measured best, and those that the paper prints as best."""
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
        """All of it in words."""
        if not self.pairs:
            return "ranking: no two methods to compare with the paper"
        start = "ranking" if self.compared == self.methods else f"ranking of {self.compared} of {self.methods} methods"
        if self.same_order:
            return f"{start}: same order as in the paper"
        winner = "same winner" if self.same_winner else f"winner {self.best} (paper: {' and '.join(self.paper_best)})"
        text = f"{start}: {winner}; {self.agreeing} of {self.pairs} pairs in the paper's order, tau {self.tau:.2f}"
        if self.clear_pairs:
            text += f"; {self.clear_agreeing} of the {self.clear_pairs} pairs that the paper tells apart clearly"
        return text


@dataclass(frozen=True)
class Panel:
    """Methods that are compared with each other."""

    title: str
    lines: tuple[Line, ...]

    @property
    def ranking(self) -> Ranking:
        """Measured against published order."""
        return rank(self.lines)


@dataclass(frozen=True)
class Verdict:
    """A table or figure of the paper beside its reproduction."""

    panels: tuple[Panel, ...]
    averages: tuple[Panel, ...] = ()
    """The panels averaged over the recipe's `average`, over those values for which everything is there."""

    @property
    def sentence(self) -> str:
        """How often the rankings agree."""
        rankings = [p.ranking for p in self.panels if p.ranking.pairs]
        if not rankings:
            return "Nothing to rank yet."
        pairs, clear = sum(r.pairs for r in rankings), sum(r.clear_pairs for r in rankings)
        panels = f"{len(rankings)} panel{'s' if len(rankings) > 1 else ''}"
        return (
            f"Rankings in {panels}: same winner in {sum(r.same_winner for r in rankings)}, same order in "
            f"{sum(r.same_order for r in rankings)}; {sum(r.agreeing for r in rankings)} of {pairs} pairs of methods "
            f"in the paper's order, {sum(r.clear_agreeing for r in rankings)} of the {clear} that the paper tells "
            "apart by more than the standard deviations."
        )

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures must know: each sentence once, with the methods that it concerns."""
        where: dict[str, list[str]] = {}
        for panel in self.panels:
            for line in panel.lines:
                for warning in line.warnings:
                    place = line.label if len(self.panels) == 1 else f"{line.label} in {panel.title}"
                    where.setdefault(warning, []).append(place)
        total = sum(len(panel.lines) for panel in self.panels)
        return [f"{_places(places, total)}: {warning}" for warning, places in where.items()]

    def to_json(self) -> dict[str, Any]:
        """Plain words and numbers."""
        return {
            "summary": self.sentence,
            "panels": [_panel_json(p) for p in self.panels],
            "averages": [_panel_json(p) for p in self.averages],
            "warnings": self.warnings,
        }


def judge(recipe: Recipe, planned: Sequence[Planned], measured: Iterable[Cell]) -> Verdict:
    """Set what was measured for the planned experiments beside the recipe's table of the paper."""
    by_cell = {cell.experiment.cell: cell for cell in measured}
    groups: dict[tuple[str, ...], dict[str, Planned]] = {}
    for p in planned:
        groups.setdefault(_words(p.asked, recipe.panels), {}).setdefault(p.asked.cell, p)
    lines = {
        key: [_line(p.asked, by_cell.get(p.made.cell), recipe.table) for p in group.values()]
        for key, group in groups.items()
    }
    panels = tuple(Panel(_title(key, next(iter(groups[key].values()))), tuple(lines_)) for key, lines_ in lines.items())
    stand_ins = any(p.asked != p.made for p in planned)
    averages = () if stand_ins or not recipe.average else _averages(lines, recipe.panels.index(recipe.average))
    return Verdict(panels, averages)


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


def rank(lines: Sequence[Line]) -> Ranking:
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
        if abs(paper_a - paper_b) > (a.paper_std or 0.0) + (b.paper_std or 0.0):
            clear += 1
            clear_agreeing += agrees
    top = max((paper for _, _, paper in both), default=None)
    best = max(both, key=lambda entry: entry[1], default=None)
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


def _line(asked: Experiment, cell: Cell | None, table: int | None) -> Line:
    reference = published(table, asked)
    return Line(
        method=asked.method,
        label=asked.label,
        mean=None if cell is None or cell.mean is None else 100 * cell.mean,
        std=None if cell is None or cell.std is None else 100 * cell.std,
        lr=cell.lr if cell else None,
        seeds=cell.seeds if cell else 0,
        diverged=cell is not None and cell.mean is None and cell.count("diverged") > 0 and not cell.count("unfinished"),
        paper_mean=reference.mean if reference else None,
        paper_std=reference.std if reference else None,
        warnings=tuple(w.removeprefix(f"{cell.label}: ") for w in cell.warnings) if cell else ("no run has been made",),
    )


def _averages(lines: dict[tuple[str, ...], list[Line]], position: int) -> tuple[Panel, ...]:
    """Panels that differ at `position` of their keys only become one: the mean of each method over them."""
    groups: dict[tuple[str, ...], list[tuple[str, list[Line]]]] = {}
    for key, group in lines.items():
        groups.setdefault((*key[:position], *key[position + 1 :]), []).append((key[position], group))
    found = []
    for rest, members in groups.items():
        whole = [(name, group) for name, group in members if all(line.mean is not None for line in group)]
        if len(whole) < 2:
            continue
        averaged = [_mean_line(same) for same in zip(*(group for _, group in whole), strict=True)]
        found.append(Panel(f"average of {', '.join(name for name, _ in whole)}, {', '.join(rest)}", tuple(averaged)))
    return tuple(found)


def _mean_line(same: Sequence[Line]) -> Line:
    papers = [line.paper_mean for line in same if line.paper_mean is not None]
    return Line(
        method=same[0].method,
        label=same[0].label,
        mean=fmean(line.mean for line in same if line.mean is not None),
        std=None,
        lr=None,
        seeds=min(line.seeds for line in same),
        diverged=False,
        paper_mean=fmean(papers) if len(papers) == len(same) else None,
        paper_std=None,
    )


def _words(experiment: Experiment, keys: Sequence[str]) -> tuple[str, ...]:
    """The values of the keys, as a title has them: "k = 4" for a partition."""
    split = partition.get(experiment.partition, experiment.nodes)
    parameter = next((f"{name} = {getattr(split, name):g}" for name in ("k", "alpha") if hasattr(split, name)), "iid")
    values = {**experiment.to_dict(), "model": experiment.model_name, "partition": parameter}
    return tuple(str(values[key]) for key in keys)


def _title(key: tuple[str, ...], planned: Planned) -> str:
    asked, made = planned.asked, planned.made
    words = ", ".join(key)
    if asked.dataset != made.dataset:
        return f"{words} ({made.dataset} in place of {asked.dataset})"
    if asked.model_name != made.model_name:
        return f"{words} ({made.model_name} in place of {asked.model_name})"
    return words


def _places(places: Sequence[str], total: int) -> str:
    if len(places) == total:
        return "everywhere"
    return "; ".join(places) if len(places) < 4 else f"{'; '.join(places[:3])} and {len(places) - 3} more"


def _panel_json(panel: Panel) -> dict[str, Any]:
    ranking = panel.ranking
    return {
        "title": panel.title,
        "methods": [{**asdict(line), "difference": line.difference} for line in panel.lines],
        "ranking": {
            **asdict(ranking),
            "same_order": ranking.same_order,
            "same_winner": ranking.same_winner,
            "sentence": ranking.sentence,
        },
    }
