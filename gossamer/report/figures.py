"""Figures by matplotlib: the report's charts for papers, and what the `.plot()` of a graph, partition or run draws."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._common import plotting
from gossamer._common.files import replacing
from gossamer._common.formatting import ACCURACY, MetricFacts, Row
from gossamer.errors import InputError
from gossamer.experiments.store import StoredRun
from gossamer.report import graph_drawing
from gossamer.report.charts import LineChart, changes_in, line_charts
from gossamer.report.comparison import Comparison, ComparisonPanel, collect, part_note
from gossamer.report.style import VERMILION, Look, class_colours, matplotlib_line, matplotlib_marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gossamer.data.partition import Partition
    from gossamer.topology import Topology

FORMATS = ("png", "svg", "pdf")

# The width of a column and the size of type in a two-column paper.
_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_WIDTH, _HEIGHT = 3.4, 2.4
_MOST_CLASS_NAMES = 20
"""A legend of more classes would be longer than the bars are high."""


def load_matplotlib() -> Any:
    """Matplotlib without pyplot, which would take over the windows of the calling program."""
    try:
        import matplotlib.figure
    except ImportError:
        raise InputError(
            "Figures need matplotlib, which is not installed; run: pip install 'gossamer[report]'."
        ) from None
    return matplotlib


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure as .png, .svg or .pdf and return its path; the same figure gives the same bytes."""
    undated: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    format = path.suffix.lower()
    with replacing(path) as temporary, load_matplotlib().rc_context({"svg.hashsalt": "gossamer", "pdf.fonttype": 42}):
        figure.savefig(temporary, format=format[1:], dpi=160, metadata=undated.get(format, {}))
    return path


def write_figures(
    runs: Iterable[StoredRun] | Comparison, directory: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write the charts of every panel into `directory`, in a paper's style; returns their paths."""
    for format in formats:
        if format not in FORMATS:
            raise InputError(f"Figures are written as {', '.join(FORMATS)}, not as '{format}'.")
    comparison = collect(runs)
    written = []
    for panel in comparison.panels:
        prefix = f"{panel.key}-" if len(comparison.panels) > 1 else ""
        for name, figure in panel_figures(panel, comparison.looks).items():
            # The layout is computed once and shared by all formats, which takes a third of the time.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            written += [save(figure, directory / f"{prefix}{name}.{format}") for format in formats]
    return written


def panel_figures(panel: ComparisonPanel, looks: Mapping[str, Look]) -> dict[str, "Figure"]:
    """Every chart of a panel by its key."""
    with load_matplotlib().rc_context(_STYLE):
        found = {chart.key: _lines(chart, looks) for chart in line_charts(panel)}
        if "partition" in panel.about:
            partition = panel.about["partition"]
            title = f"mean label distance {partition['label_distance']:.3f}"
            found["partition"] = _partition_figure(partition["counts"], partition["classes"], title, (_WIDTH, _HEIGHT))
        if "graph" in panel.about:
            graph = panel.about["graph"]
            found["graph"] = _graph_figure(
                **{key: graph[key] for key in ("name", "nodes", "edges", "p", "spectral_gap")}
            )
    return found


def draw_topology(graph: "Topology", path: Path | None = None) -> "Figure":
    """Draw the nodes and every edge that is ever used, into a .png, .svg or .pdf file if one is named."""
    _check_format(path)
    edges = graph.graph.edges.tolist()
    return _saved(_graph_figure(graph.name, graph.n, edges, graph.p, graph.spectral_gap), path)


def draw_partition(
    partition: "Partition", path: Path | None = None, class_names: Sequence[str] | None = None
) -> "Figure":
    """Draw one stacked bar per node, one colour per class, into a .png, .svg or .pdf file if one is named."""
    counts = partition.label_counts.tolist()
    classes = len(counts[0])
    names = [str(label) for label in range(classes)] if class_names is None else list(class_names)
    if len(names) != classes:
        raise InputError(f"A chart of {classes} classes needs {classes} class names, not {len(names)}.")
    _check_format(path)
    size = (min(4 + 0.35 * len(counts), 16), 4)
    return _saved(_partition_figure(counts, names, partition.recipe, size), path)


def draw_run(
    rows: Sequence[Row], path: Path | None = None, title: str = "", metric: MetricFacts = ACCURACY
) -> "Figure":
    """Draw the metric over epochs: mean, range over the nodes, and averaged model.

    Dashed lines are nodes that leave, dotted ones nodes that return. The figure goes into a .png, .svg or .pdf file if
    one is named.
    """
    if not rows:
        raise InputError("The run has no evaluations yet, so there is nothing to draw.")
    _check_format(path)
    figure, axes = _empty(5.2, 3.4)
    epochs = [row["epoch"] for row in rows]
    lowest, highest, mean, averaged = (
        [metric.scale * row.get(key.format(metric.name), math.nan) for row in rows]
        for key in ("{}_min", "{}_max", "{}", "averaged_{}")
    )
    axes.fill_between(epochs, lowest, highest, color=VERMILION, alpha=0.2, lw=0, label="worst to best node")
    axes.plot(epochs, mean, color=VERMILION, label="mean over nodes")
    axes.plot(epochs, averaged, "k--", lw=1, label="averaged model")
    _mark(axes, changes_in(rows))
    axes.set(xlabel="\n".join(filter(None, ["epoch", part_note([rows])])), ylabel=f"test {metric.title}", title=title)
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    return _saved(figure, path)


plotting.DRAWERS.update(topology=draw_topology, partition=draw_partition, run=draw_run)


def draw_bars(axes: "Axes", counts: Sequence[Sequence[int]], classes: Sequence[str]) -> None:
    """Draw `counts` [nodes][classes] as stacked bars, labelled by their classes."""
    below = [0] * len(counts)
    for k, (name, colour) in enumerate(zip(classes, class_colours(len(classes)), strict=True)):
        heights = [row[k] for row in counts]
        axes.bar(range(len(counts)), heights, bottom=below, color=colour, label=str(name), width=0.85)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(xlabel="node")
    axes.locator_params(axis="x", integer=True)


def _partition_figure(
    counts: Sequence[Sequence[int]], classes: Sequence[str], title: str, size: tuple[float, float]
) -> "Figure":
    figure, axes = _empty(*size)
    draw_bars(axes, counts, classes)
    axes.set(ylabel="samples", title=title)
    if len(classes) <= _MOST_CLASS_NAMES:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], title="class", loc="outside right center", frameon=False)
    return figure


def _graph_figure(
    name: str, nodes: int, edges: Sequence[graph_drawing.Edge], p: float, spectral_gap: float
) -> "Figure":
    figure, axes = _empty(_HEIGHT)
    at = graph_drawing.places(nodes, edges)
    if len(edges) <= graph_drawing.MOST_EDGES:
        for a, b in edges:
            axes.plot([at[a][0], at[b][0]], [at[a][1], at[b][1]], color="0.55", linewidth=0.7, zorder=1)
    axes.scatter([x for x, _ in at], [y for _, y in at], s=60 if nodes <= 32 else 6, color="0.1", zorder=2)
    if nodes <= 32:
        for node, (x, y) in enumerate(at):
            axes.text(x, y, str(node), color="white", fontsize=5.5, ha="center", va="center", zorder=3)
    axes.set_title(f"{name}\np = {p:.3g}, spectral gap {spectral_gap:.3g}", fontsize=8)
    axes.set_aspect("equal")
    axes.margins(0.1)
    axes.invert_yaxis()
    axes.axis("off")
    return figure


def _lines(chart: LineChart, looks: Mapping[str, Look]) -> "Figure":
    figure, axes = _empty()
    for series in chart.series:
        look = looks[series.method]
        line: dict[str, Any] = matplotlib_line(look)
        marker = matplotlib_marker(look)
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=look.colour, alpha=0.16, linewidth=0)
        if chart.points_only:
            line |= {"linestyle": "", "marker": marker, "markersize": 3.5}
        elif chart.log_x:
            line |= {"marker": marker, "markersize": 3.5}
        axes.plot(series.x, series.y, label=series.method, **line)
        for x, y in zip(series.x, series.y, strict=True):
            if x == series.chosen:
                axes.plot([x], [y], marker=marker, markersize=7, color=look.colour, zorder=4)
    _mark(axes, chart.marks)
    axes.set(xlabel=chart.x_title, ylabel=chart.y_title)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.ticks:
        axes.minorticks_off()
        axes.set_xticks(chart.ticks, [f"{t:g}" for t in chart.ticks])
    axes.grid(True, axis="y" if chart.points_only else "both", alpha=0.25, linewidth=0.5)
    handles, labels = axes.get_legend_handles_labels()
    columns = 3 if max(map(len, labels)) <= 17 else 2
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, frameon=False, columnspacing=1, handlelength=1.6
    )
    return figure


def _mark(axes: "Axes", changes: Sequence[tuple[float, str]]) -> None:
    """A dashed line where a node leaves, a dotted one where one returns."""
    for x, word in changes:
        axes.axvline(x, color="0.6", linewidth=0.6, linestyle="--" if word == "leaves" else ":", zorder=0)


def _empty(width: float = _WIDTH, height: float = _HEIGHT) -> tuple["Figure", "Axes"]:
    load_matplotlib()
    figure: Figure = _figure_class()(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


@cache
def _figure_class() -> Any:
    """A figure that notebooks show: matplotlib's own is shown only where pyplot has been imported."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return NotebookFigure


def _saved(figure: "Figure", path: Path | None) -> "Figure":
    if path is not None:
        save(figure, path)
    return figure


def _check_format(path: Path | None) -> None:
    if path is not None and path.suffix[1:].lower() not in FORMATS:
        raise InputError(f"Cannot draw into {path}: its name must end in {', '.join(f'.{f}' for f in FORMATS)}.")
