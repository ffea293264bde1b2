"""The report's charts for papers: PNG, SVG and PDF by matplotlib, in the colours of the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._common.files import replacing
from gossamer.errors import InputError
from gossamer.report import graph_drawing
from gossamer.report.comparison import Comparison, Panel
from gossamer.report.figures import load_matplotlib, render
from gossamer.report.line_charts import LineChart, Series, line_charts
from gossamer.report.partition_bars import bars_figure
from gossamer.report.style import Look, matplotlib_line, matplotlib_marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def figure_files(comparison: Comparison, directory: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write every chart of every panel into `directory`; returns the paths."""
    for format in formats:
        if format not in FORMATS:
            raise InputError(f"Figures are written as {', '.join(FORMATS)}, not as '{format}'.")
    written = []
    for panel in comparison.panels:
        prefix = f"{panel.key}-" if len(comparison.panels) > 1 else ""
        for name, figure in panel_figures(panel, comparison.looks).items():
            # The layout is found once: every format gets the same, in a third of the time.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            for format in formats:
                path = directory / f"{prefix}{name}.{format}"
                with replacing(path) as temporary:
                    render(figure, temporary, format)
                written.append(path)
    return written


def panel_figures(panel: Panel, looks: Mapping[str, Look]) -> dict[str, "Figure"]:
    """Every chart of a panel by its key."""
    with load_matplotlib().rc_context(_STYLE):
        found = {chart.key: _lines(chart, looks) for chart in line_charts(panel)}
        if "partition" in panel.about:
            partition = panel.about["partition"]
            title = f"mean label distance {partition['label_distance']:.3f}"
            found["partition"] = bars_figure(partition["counts"], partition["classes"], title, (_WIDTH, _HEIGHT))
        if "graph" in panel.about:
            found["graph"] = graph_figure(panel.about["graph"])
    return found


def _lines(chart: LineChart, looks: Mapping[str, Look]) -> "Figure":
    figure, axes = _empty()
    for series in chart.series:
        look = looks[series.method]
        line: dict[str, Any] = matplotlib_line(look)
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=look.colour, alpha=0.16, linewidth=0)
        if chart.points_only:
            line |= {"linestyle": "", "marker": matplotlib_marker(look), "markersize": 3.5}
        elif chart.log_x:
            line |= {"marker": matplotlib_marker(look), "markersize": 3.5}
        axes.plot(series.x, series.y, label=series.method, **line)
        _mark_chosen(axes, series, look)
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


def _mark_chosen(axes: "Axes", series: Series, look: Look) -> None:
    for x, y in zip(series.x, series.y, strict=True):
        if x == series.chosen:
            axes.plot([x], [y], marker=matplotlib_marker(look), markersize=7, color=look.colour, zorder=4)


def graph_figure(graph: dict[str, Any]) -> "Figure":
    """The graph as run.json describes it, with its p and spectral gap."""
    figure, axes = _empty(_HEIGHT)
    at = graph_drawing.places(graph["nodes"], graph["edges"])
    if len(graph["edges"]) <= graph_drawing.MOST_EDGES:
        for a, b in graph["edges"]:
            axes.plot([at[a][0], at[b][0]], [at[a][1], at[b][1]], color="0.55", linewidth=0.7, zorder=1)
    axes.scatter([x for x, _ in at], [y for _, y in at], s=60 if graph["nodes"] <= 32 else 6, color="0.1", zorder=2)
    if graph["nodes"] <= 32:
        for node, (x, y) in enumerate(at):
            axes.text(x, y, str(node), color="white", fontsize=5.5, ha="center", va="center", zorder=3)
    axes.set(title=f"{graph['name']}\np = {graph['p']:.3g}, spectral gap {graph['spectral_gap']:.3g}")
    axes.set_aspect("equal")
    axes.margins(0.1)
    axes.invert_yaxis()
    axes.axis("off")
    return figure


def _empty(width: float = _WIDTH) -> tuple["Figure", "Axes"]:
    figure: Figure = load_matplotlib().figure.Figure(figsize=(width, _HEIGHT), layout="constrained")
    return figure, figure.subplots()
