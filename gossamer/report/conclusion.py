"""What a comparison shows, in a sentence or two: who is ahead, who cannot be told apart, and what the seeds support."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from gossamer._common.formatting import ACCURACY, MetricFacts

RULE = (
    "Ahead (and bold): over the seeds that all methods have, the 95 % t-interval of the mean paired difference lies "
    "above 0; each pair is judged on its own, at the step sizes chosen, without a correction for the number of pairs."
)
"""How "ahead" is decided, for the page."""
CHANGES = "Rises and falls from one setting to another are judged in the same way, each seed with itself."
"""How changes are decided, for a page with several settings."""
ONE_SEED = (
    "One seed is all that the methods have in common: which one is ahead may be chance, so nothing is bold. Repeat the "
    "comparison with several seeds (--seeds 0,1,2)."
)
NO_COMMON_SEED = "The methods have no seed in common, so they cannot be compared in pairs and nothing is bold."

_MOST_NAMES = 3
# Two-sided 95 % quantiles of Student's t with 1, 2, ... degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Contender:
    """A method: its figure by seed, or why it has none ("diverged", "unfinished", "failed")."""

    name: str
    figures: Mapping[int, float] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True)
class Conclusion:
    """What the figures of one setting say."""

    sentence: str
    best: str | None = None
    """The method with the best mean over the common seeds."""
    clear: bool = False
    """Whether it is ahead of every other method that has a figure, which there must be."""
    warning: str = ""
    """What a reader must be told first; empty if there is nothing."""
    alone: bool = False
    """Whether it was compared with no other method."""


@dataclass(frozen=True)
class Setting:
    """One of several settings: how sentences call it ("4 classes per node"), and its methods."""

    name: str
    contenders: Sequence[Contender]


def conclude(contenders: Sequence[Contender], metric: MetricFacts) -> Conclusion:
    """Compare methods in one setting, whatever their order.

    >>> runs = [Contender("A", {0: 0.90, 1: 0.92, 2: 0.91}), Contender("B", {0: 0.70, 1: 0.71, 2: 0.72})]
    >>> conclude(runs, MetricFacts()).sentence
    'A has the highest mean test accuracy, 91.0 %, and is ahead of B by 20.0 points over three seeds.'
    """
    rivals = [c for c in contenders if c.figures and not c.missing]
    without = _without([c for c in contenders if c not in rivals])
    if not rivals:
        return Conclusion(f"There is no figure to compare yet: {without}.")
    end = f"; {without}." if without else "."
    seeds = sorted(frozenset.intersection(*(frozenset(c.figures) for c in rivals)))
    means = {c.name: fmean(c.figures[s] for s in seeds or c.figures) for c in rivals}
    ranked = sorted(rivals, key=lambda c: -metric.goodness(means[c.name]))
    best, others = ranked[0], ranked[1:]
    value, over = metric.with_unit(means[best.name]), f"over {_number(len(seeds or best.figures))} seeds"
    warning = NO_COMMON_SEED if not seeds else ONE_SEED if len(seeds) == 1 else ""
    if not others:
        runs = "with one seed" if len(best.figures) == 1 else over
        compared = "" if without else ", compared with no other method"
        value += "" if metric == ACCURACY else f" ({metric.direction})"
        sentence = f"{best.name} reaches a test {metric.name} of {value} {runs}{compared}{end}"
        return Conclusion(sentence, best.name, alone=not without)
    direction = "highest" if metric.higher_is_better else "lowest"
    if warning:
        place = "with the one seed that all have" if seeds else "each over its own seeds"
        margin = _difference(metric, abs(means[best.name] - means[others[0].name]))
        sentence = (
            f"{best.name} has the {direction} test {metric.name} {place}, {value}, {margin} from {others[0].name}"
        )
        return Conclusion(f"{sentence}, which does not tell methods apart{end}", best.name, False, warning)
    gaps = {c.name: [metric.goodness(best.figures[s]) - metric.goodness(c.figures[s]) for s in seeds] for c in others}
    behind = {name: fmean(gap) for name, gap in gaps.items() if is_above_zero(gap)}
    level = [name for name in gaps if name not in behind]
    sentence = f"{best.name} has the {direction} mean test {metric.name}, {value}"
    if not level:
        sentence += f", and is ahead of {_behind(behind, metric)} {over}"
    elif behind:
        sentence += f", and is ahead of {_behind(behind, metric)} {over}; {_level(level)} cannot be told apart from it"
    else:
        sentence += f", but {_level(level)} cannot be told apart from it {over}"
    return Conclusion(f"{sentence}{end}", best.name, not level)


def summarize(conclusions: Mapping[str, Conclusion], measured: str) -> str:
    """What several settings say together: a setting alone in its own words, more of them by who is ahead where.

    `measured` names their metrics and whether higher is better.

    >>> found = {"k=1": Conclusion("", "A", True), "k=4": Conclusion("", "A"), "iid": Conclusion("", "B")}
    >>> summarize(found, "mae, lower is better").split(". ")
    ['Of 3 settings (mae, lower is better), A is ahead of every other method in 1 (k=1)', \
'In 2 no method is ahead of every other one.']
    """
    if len(conclusions) == 1:
        return next(iter(conclusions.values())).sentence
    clear: dict[str, list[str]] = {}
    for setting, found in conclusions.items():
        if found.clear and found.best:
            clear.setdefault(found.best, []).append(setting)
    open_ones = sum(not found.clear for found in conclusions.values())
    if not clear:
        best = Counter(found.best for found in conclusions.values() if found.best and not found.alone)
        leaders = [f"{name} in {count}" for name, count in best.most_common(_MOST_NAMES)]
        rest = f" Best by the mean: {_list(leaders)}." if leaders else ""
        return f"In none of {len(conclusions)} settings ({measured}) is a method ahead of every other one.{rest}"
    told = [
        f"{name} is ahead of every other method in {len(settings)}"
        + (f" ({', '.join(settings)})" if len(settings) <= _MOST_NAMES else "")
        for name, settings in sorted(clear.items(), key=lambda item: -len(item[1]))
    ]
    rest = f" In {open_ones} no method is ahead of every other one." if open_ones else ""
    return f"Of {len(conclusions)} settings ({measured}), {_list(told)}.{rest}"


def compare_settings(settings: Sequence[Setting], metric: MetricFacts) -> str:
    """What settings say together that differ in one thing: who depends on it and who does not, and who is ahead.

    >>> easy = Setting("iid", [Contender("A", {0: 0.92, 1: 0.94}), Contender("B", {0: 0.93, 1: 0.95})])
    >>> hard = Setting("one class", [Contender("A", {0: 0.52, 1: 0.54}), Contender("B", {0: 0.92, 1: 0.94})])
    >>> change, ahead = compare_settings([easy, hard], MetricFacts()).split(". ")
    >>> change
    'From iid to one class, the test accuracy of A falls from 93.0 to 53.0 % (by 40.0 points over two seeds), \
that of B from 94.0 to 93.0 % (by 1.0 points)'
    >>> ahead
    'With one class, B has the highest mean test accuracy, 93.0 %, and is ahead of A by 40.0 points over two seeds.'
    """
    found = {setting.name: conclude(setting.contenders, metric) for setting in settings}
    figures = {s.name: {c.name: c.figures for c in s.contenders if c.figures and not c.missing} for s in settings}
    names = [name for name in figures[settings[0].name] if all(name in by_name for by_name in figures.values())]
    common = [frozenset(by_name[name]) for by_name in figures.values() for name in names]
    seeds = sorted(frozenset.intersection(*common)) if common else []
    if not seeds or len(settings) < 2:
        return summarize(found, metric.described)
    average = {
        setting: fmean(metric.goodness(by_name[name][seed]) for name in names for seed in seeds)
        for setting, by_name in figures.items()
    }
    easy, *_, hard = sorted(average, key=lambda setting: -average[setting])
    changes = [_Contrast(n, [figures[easy][n][s] for s in seeds], [figures[hard][n][s] for s in seeds]) for n in names]
    if len(settings) == 2:
        return f"From {easy} to {hard}, {_changes(changes, metric)}. With {hard}, {found[hard].sentence}"
    return (
        f"{summarize(found, metric.described)} On average the methods do best with {easy} and worst with {hard}: from "
        f"the one to the other, {_changes(changes, metric)}."
    )


@dataclass(frozen=True)
class _Contrast:
    """The figures of a method in two settings, seed by seed."""

    name: str
    before: Sequence[float]
    after: Sequence[float]

    def loss(self, metric: MetricFacts) -> list[float]:
        """By how much it gets worse, seed by seed."""
        return [metric.goodness(a) - metric.goodness(b) for a, b in zip(self.before, self.after, strict=True)]

    def is_supported(self, metric: MetricFacts) -> bool:
        """Whether the seeds support that there is a change, and one that the rounded figures show."""
        loss = self.loss(metric)
        return self.is_shown(metric) and (is_above_zero(loss) or is_above_zero([-x for x in loss]))

    def is_shown(self, metric: MetricFacts) -> bool:
        """Whether the figures differ as they are rounded, which those of two networks need not."""
        return metric.shown(fmean(self.before)) != metric.shown(fmean(self.after))

    def verb(self) -> str:
        return "rises" if fmean(self.after) > fmean(self.before) else "falls"

    def values(self, metric: MetricFacts) -> str:
        return f"from {metric.shown(fmean(self.before))} to {metric.with_unit(fmean(self.after))}"

    def by(self, metric: MetricFacts) -> str:
        return _difference(metric, abs(fmean(self.after) - fmean(self.before)))


def _changes(changes: Sequence[_Contrast], metric: MetricFacts) -> str:
    """Of several methods the one that loses most and the one that loses least, and whether the seeds support it."""
    ranked = sorted(changes, key=lambda change: -fmean(change.loss(metric)))
    most, least, seeds = ranked[0], ranked[-1], len(ranked[0].before)
    over = f"over {_number(seeds)} seeds"
    subject = f"the test {metric.name} of {most.name} {most.verb()} {most.values(metric)}"
    if not any(change.is_shown(metric) for change in ranked):
        return f"no method's test {metric.name} changes{'' if seeds == 1 else f' {over}'}"
    if seeds == 1:
        also = "" if most is least else f", that of {least.name} {_again(most, least)}{least.values(metric)}"
        return f"{subject}{also}, with one seed, which may be chance"
    supported = [change for change in ranked if change.is_supported(metric)]
    if not supported:
        return f"no method's test {metric.name} changes by more than chance explains {over}"
    most = supported[0]
    subject = f"the test {metric.name} of {most.name} {most.verb()} {most.values(metric)} (by {most.by(metric)} {over})"
    if most is least:
        return subject
    apart = [a - b for a, b in zip(most.loss(metric), least.loss(metric), strict=True)]
    told = f"{subject}, that of {least.name} {_again(most, least)}{least.values(metric)}"
    if not is_above_zero(apart):
        return f"{told}, and which of the two depends more on it cannot be told"
    return f"{told} (by {least.by(metric)})" if least in supported else f"{told}, which may be chance"


def _again(first: _Contrast, second: _Contrast) -> str:
    return "" if first.verb() == second.verb() else f"{second.verb()} "


def is_above_zero(differences: Sequence[float]) -> bool:
    """Whether the 95 % t-interval of the mean of paired differences lies above 0; never with fewer than two.

    >>> is_above_zero([2.0, 2.1, 1.9]), is_above_zero([2.0, -1.0, 1.0]), is_above_zero([5.0])
    (True, False, False)
    """
    n = len(differences)
    return n > 1 and fmean(differences) > t_quantile(n - 1) * stdev(differences) / math.sqrt(n)


def t_quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t: a table, then the normal quantile with Fisher's first corrections.

    >>> t_quantile(2), round(t_quantile(60), 2)
    (4.303, 2.0)
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _behind(behind: Mapping[str, float], metric: MetricFacts) -> str:
    """Who is behind and by how much; of many the nearest and the farthest."""
    by_margin = sorted(behind.items(), key=lambda item: item[1])
    if len(by_margin) <= _MOST_NAMES:
        return _list([f"{name} by {_difference(metric, gap)}" for name, gap in by_margin])
    (near, least), (far, most) = by_margin[0], by_margin[-1]
    return (
        f"{_number(len(by_margin))} methods, from {near} by {_difference(metric, least)} to {far} by "
        f"{_difference(metric, most)}"
    )


def _level(names: Sequence[str]) -> str:
    return _list(names) if len(names) <= _MOST_NAMES else f"{_number(len(names))} methods, among them {names[0]},"


def _difference(metric: MetricFacts, value: float) -> str:
    """A difference of two figures, with its unit."""
    return f"{100 * value:.1f} points" if metric.percent else f"{value:.3g}"


def _without(contenders: Sequence[Contender]) -> str:
    """Those without a figure, by the reason."""
    groups: dict[str, list[str]] = {}
    for contender in contenders:
        groups.setdefault(contender.missing or "unfinished", []).append(contender.name)
    told = []
    for reason, names in groups.items():
        verb = reason if reason in ("diverged", "failed") else f"{'is' if len(names) == 1 else 'are'} {reason}"
        told.append(f"{_list(names)} {verb}")
    return "; ".join(told)


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _list(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
