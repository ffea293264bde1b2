"""The charts of a panel as plain numbers; `plotly_charts` draws them for the page, `figures` for papers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gossamer._common.formatting import Row
from gossamer.report.comparison import ComparisonPanel, part_note, tested_on


@dataclass(frozen=True)
class Series:
    """One method's line: points, and their scatter over the seeds."""

    method: str
    x: list[float]
    y: list[float]
    std: list[float] = field(default_factory=list)
    """The standard deviation over the seeds, if there are several."""
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    """The band to draw, clipped to possible values."""
    chosen: float | None = None
    """The x of the point to mark."""


@dataclass(frozen=True)
class LineChart:
    """Lines, or points only, one series per method."""

    key: str
    """A short name, for files and for the page."""
    title: str
    caption: str
    """What it shows, in a sentence."""
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    points_only: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """Where nodes leave or join, to be marked by a line: x, and "leaves" or "joins"."""
    ticks: tuple[float, ...] = ()
    """Labels of the x axis; empty: chosen by the plotting library."""


def line_charts(panel: ComparisonPanel) -> list[LineChart]:
    """All charts of a panel that have something to show."""
    data, data_unit = _unit(_largest(panel, "bytes"), (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1)))
    time, time_unit = _unit(_largest(panel, "seconds"), (("hours", 3600), ("minutes", 60), ("seconds", 1)))
    epoch = ("epoch", "epoch", 1.0)
    metric, name = panel.metric, panel.metric.name
    title, axis, better = f"{name[0].upper()}{name[1:]}", f"test {metric.title}", _direction(panel)
    reach = f"What a node sends to reach {'an' if name[0] in 'aeiou' else 'a'} {name}."
    found = [
        _over(panel, name, f"Test {name}", f"Mean over the nodes{better}.", "metric", axis, epoch,
              scale=metric.scale),
        _over(panel, f"{name}-bytes", f"{title} against bytes sent", reach,
              "metric", axis, ("bytes", f"sent per node ({data_unit})", data), scale=metric.scale),
        _over(panel, f"{name}-seconds", f"{title} against wall-clock",
              _timed(panel),
              "metric", axis, ("seconds", time_unit, time), scale=metric.scale),
        _over(panel, "train-loss", "Training loss",
              "Each node on its own data, mean over the nodes since the last evaluation. It is also low where nodes "
              "drift apart and do badly on the others' data.",
              "train_loss", "training loss", epoch, log_y=True),
        _over(panel, "node-spread", "Spread between nodes",
              f"The best node's test {name} minus the worst node's." if metric.higher_is_better
              else f"The worst node's test {name} minus the best node's.",
              "node_spread", f"max − min {name}{' (points)' if metric.percent else ''}", epoch, scale=metric.scale,
              band=False),
        _over(panel, "consensus", "Consensus distance", "(1/N) Σ |xᵢ − x̄|²: how far the nodes' models are apart.",
              "consensus_distance", "consensus distance", epoch, log_y=True),
        _over(panel, "tracking", "Tracking error",
              "(1/N) Σ |yᵢ − ȳ|²: how far the nodes' estimates of the common direction are apart; tracking methods.",
              "tracking_error", "tracking error", epoch, log_y=True),
        _node_figures(panel),
        _step_sizes(panel),
    ]  # fmt: skip
    # Most methods do not track: with only one that does, the chart would compare nothing.
    least = {"tracking": min(2, len(panel.entries))}
    return [chart for chart in found if len(chart.series) >= least.get(chart.key, 1)]


def _over(
    panel: ComparisonPanel,
    key: str,
    title: str,
    caption: str,
    column: str,
    y_title: str,
    x: tuple[str, str, float],
    *,
    scale: float = 1.0,
    log_y: bool = False,
    band: bool = True,
) -> LineChart:
    """`column` over the column x (its name, its title, its unit)."""
    x_column, x_title, unit = x
    # All nodes start equal: rounding errors in that zero distance would stretch a logarithmic axis.
    lowest = 1e-9 * _largest(panel, column)
    series = []
    for entry in panel.entries:
        values, along = entry.curves[column], entry.curves[x_column]
        points = [
            (a / unit, scale * m, scale * s * band)
            for a, m, s in zip(along.mean, values.mean, values.std, strict=True)
            if math.isfinite(a) and math.isfinite(m) and (m > lowest or not log_y)
        ]
        if points:
            is_share = column == "metric" and panel.metric.percent
            possible = (0.0, scale) if is_share else (-math.inf, math.inf)
            series.append(_series(entry.method, points, log_y, possible))
    if column in ("metric", "node_spread"):
        caption = f"{caption} {part_note(run.rows for entry in panel.entries for run in entry.cell.runs)}".rstrip()
    if any(s.low for s in series):
        caption += " The band is ± one standard deviation over the seeds."
    marks: tuple[tuple[float, str], ...] = ()
    if x_column == "epoch" and series:
        marks, told = _marks(panel)
        caption += told
    return LineChart(key, title, caption, x_title, y_title, tuple(series), log_y=log_y, marks=marks)


def _marks(panel: ComparisonPanel) -> tuple[tuple[tuple[float, str], ...], str]:
    """Where nodes leave or join, and a sentence on it; the changes follow from the seed, and the first one's are shown.

    A chart of several seeds could not show the changes of all.
    """
    runs = sorted((run for entry in panel.entries for run in entry.runs), key=lambda run: run.experiment.seed)
    marks = changes_in(runs[0].rows) if runs else []
    if not marks:
        return (), ""
    seeds = {run.experiment.seed for run in runs}
    which = f" with seed {runs[0].experiment.seed}" if len(seeds) > 1 else ""
    return tuple(marks), f" A node leaves at a dashed line and returns at a dotted one{which}."


def changes_in(rows: Sequence[Row]) -> list[tuple[float, str]]:
    """The epochs in which nodes leave or join, and which of the two.

    >>> changes_in([{"round": 20, "epoch": 2.0, "changes": [[5, "leaves", [3]]]}])
    [(0.5, 'leaves')]
    """
    changed = [row for row in rows if row.get("changes") and row["round"]]
    return [(at * row["epoch"] / row["round"], word) for row in changed for at, word, _ in row["changes"]]


def _series(
    method: str, points: list[tuple[float, float, float]], log_y: bool, possible: tuple[float, float]
) -> Series:
    x, y = [p[0] for p in points], [p[1] for p in points]
    if not any(s > 0 for *_, s in points):
        return Series(method, x, y)
    # A logarithmic axis cannot show a band that reaches below 0.
    low = [max(m - s, m / 10 if log_y else possible[0]) for _, m, s in points]
    return Series(method, x, y, [s for *_, s in points], low, [min(m + s, possible[1]) for _, m, s in points])


def _timed(panel: ComparisonPanel) -> str:
    """What the seconds are, which depends on who trained the nodes."""
    time = "Time of the training rounds, without evaluations"
    if panel.settings["network"] == "simulated":
        return (
            f"{time}, on the machine that simulated all nodes, which may have been busier during one run than during "
            f"another."
        )
    return (
        f"{time}, of the node that took longest, waits for other nodes included; machines and links may have been "
        f"busier during one run than during another."
    )


def _direction(panel: ComparisonPanel) -> str:
    """A word on the direction where it is not that of an accuracy."""
    return "" if panel.metric.higher_is_better else f"; {panel.metric.direction}"


def _node_figures(panel: ComparisonPanel) -> LineChart:
    metric = panel.metric
    entries = [e for e in panel.entries if e.node_figures]
    width = 0.7 / max(1, len(entries))
    series = []
    for k, entry in enumerate(entries):
        # The points of a node's methods are side by side.
        shift = width * (k - (len(entries) - 1) / 2)
        there = [(node + shift, metric.scale * a) for node, a in enumerate(entry.node_figures) if math.isfinite(a)]
        series.append(Series(entry.method, [x for x, _ in there], [y for _, y in there]))
    nodes = max((len(e.node_figures) for e in entries), default=0)
    step = max(1, math.ceil(nodes / 16))
    return LineChart(
        f"node-{metric.name}",
        f"{metric.name[0].upper()}{metric.name[1:]} of every node",
        f"Every node's own model on {tested_on(panel)} at the end, averaged over the seeds{_direction(panel)}.",
        "node",
        f"test {metric.title}",
        tuple(series),
        points_only=True,
        ticks=tuple(float(node) for node in range(0, nodes, step)),
    )


def _step_sizes(panel: ComparisonPanel) -> LineChart:
    series = []
    for entry in panel.entries:
        points = [(lr, panel.metric.scale * score) for lr, score in entry.step_sizes if lr > 0 and math.isfinite(score)]
        if len(points) > 1:
            series.append(Series(entry.method, [x for x, _ in points], [y for _, y in points], chosen=entry.cell.lr))
    ticks = sorted({x for s in series for x in s.x})
    return LineChart(
        "step-sizes",
        "Choice of the step size",
        f"{panel.metric.name[0].upper()}{panel.metric.name[1:]} on the validation set for every step size that was "
        f"tried; the larger marker is the chosen one{_direction(panel)}.",
        "step size",
        f"validation {panel.metric.title}",
        tuple(series),
        log_x=True,
        ticks=tuple(ticks) if len(ticks) <= 6 else (),
    )


def _largest(panel: ComparisonPanel, column: str) -> float:
    return max((v for e in panel.entries for v in e.curves[column].mean if math.isfinite(v)), default=0.0)


def _unit(largest: float, units: tuple[tuple[str, float], ...]) -> tuple[float, str]:
    """The largest unit of which there are at least two."""
    name, size = next(((n, s) for n, s in units if largest >= 2 * s), units[-1])
    return float(size), name
