"""The page's charts as plotly figures, in plain dictionaries.

They are written by hand because plotly's own classes take longer to validate a figure than a browser takes to draw it.
Colours of text and axes are left to the page's style sheet, so that they follow the reader's theme.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.report.charts import LineChart, Series
from gossamer.report.style import GREY, Look, class_colours

PlotlyFigure = dict[str, Any]

_FEW_POINTS = 30


def line_figure(chart: LineChart, looks: Mapping[str, Look]) -> PlotlyFigure:
    """A chart of lines. Each trace carries its method as `meta`, by which the page shows and hides it."""
    traces = [_band(s, looks[s.method]) for s in chart.series if s.low]
    traces += [_line(s, looks[s.method], chart) for s in chart.series]
    layout = _layout(chart.x_title, chart.y_title)
    if chart.log_x:
        layout["xaxis"]["type"] = "log"
    if chart.log_y:
        layout["yaxis"] |= {"type": "log", "exponentformat": "power", **_log_ticks(chart)}
    if chart.ticks:
        layout["xaxis"] |= {"tickvals": list(chart.ticks), "ticktext": [f"{t:g}" for t in chart.ticks]}
    if chart.marks:
        layout["shapes"] = [_mark(x, word) for x, word in chart.marks]
    if chart.points_only:
        layout["hovermode"] = "closest"
        layout["xaxis"]["showgrid"] = False
    return {"data": traces, "layout": layout}


def partition_figure(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> PlotlyFigure:
    """One stacked bar per node, one colour per class."""
    nodes = list(range(len(counts)))
    traces = [
        {
            "type": "bar",
            "name": str(name),
            "x": nodes,
            "y": [row[k] for row in counts],
            "marker": {"color": colour},
            "hovertemplate": f"node %{{x}}: %{{y}} of {name}<extra></extra>",
        }
        for k, (name, colour) in enumerate(zip(classes, class_colours(len(classes)), strict=True))
    ]
    layout = _layout("node", "samples")
    layout |= {"barmode": "stack", "bargap": 0.15, "hovermode": "closest", "showlegend": len(classes) <= 20}
    layout["legend"] = {"traceorder": "reversed", "x": 1.01, "y": 1, "font": {"size": 10}}
    layout["xaxis"] |= {"dtick": max(1, math.ceil(len(counts) / 16)), "showgrid": False}
    return {"data": traces, "layout": layout}


def _line(series: Series, look: Look, chart: LineChart) -> PlotlyFigure:
    marked = chart.points_only or len(series.x) <= _FEW_POINTS
    size: Any = 8 if chart.points_only else 6
    if series.chosen is not None:
        size = [11 if x == series.chosen else 6 for x in series.x]
    trace: PlotlyFigure = {
        "type": "scatter",
        "name": series.method,
        "meta": series.method,
        "mode": "markers" if chart.points_only else "lines+markers" if marked else "lines",
        "x": _short(series.x),
        "y": _short(series.y),
        "line": {"color": look.colour, "dash": look.dash, "width": look.width},
        "marker": {"color": look.colour, "symbol": look.marker, "size": size},
        "hovertemplate": "%{y:.4~g}",
    }
    if series.std:
        trace["customdata"] = _short(series.std)
        trace["hovertemplate"] = "%{y:.4~g} ± %{customdata:.2~g}"
    if chart.points_only:
        trace["text"] = [str(round(x)) for x in series.x]
        value = "%{y:.1f} %" if chart.y_title.endswith("(%)") else "%{y:.4~g}"
        trace["hovertemplate"] = f"node %{{text}}: {value}<extra>{series.method}</extra>"
    return trace


def _band(series: Series, look: Look) -> PlotlyFigure:
    red, green, blue = (int(look.colour[k : k + 2], 16) for k in (1, 3, 5))
    return {
        "type": "scatter",
        "meta": series.method,
        "x": _short(series.x + series.x[::-1]),
        "y": _short(series.high + series.low[::-1]),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.16)",
        "hoverinfo": "skip",
    }


def _mark(x: float, word: str) -> PlotlyFigure:
    """A vertical line behind the curves."""
    line = {"color": GREY, "width": 1, "dash": "dash" if word == "leaves" else "dot"}
    return {
        "type": "line", "layer": "below", "opacity": 0.6, "xref": "x", "yref": "paper",
        "x0": float(f"{x:.5g}"), "x1": float(f"{x:.5g}"), "y0": 0, "y1": 1, "line": line,
    }  # fmt: skip


def _layout(x_title: str, y_title: str) -> PlotlyFigure:
    axis = {"automargin": True, "zeroline": False}
    return {
        "xaxis": {
            **axis,
            "title": {"text": x_title, "standoff": 8},
            "hoverformat": ".3~g",
            "unifiedhovertitle": {"text": f"{x_title}: %{{x}}"},
            "spikethickness": 1,
            "spikecolor": GREY,
            "spikedash": "dot",
        },
        "yaxis": {**axis, "title": {"text": y_title, "standoff": 8}},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "x unified",
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12},
    }


def _log_ticks(chart: LineChart) -> PlotlyFigure:
    """Labels at powers of ten, and over less than two of them also at 2 and 5: plotly would label every digit."""
    values = [y for s in chart.series for y in s.y]
    ratio = max(values) / min(values)
    return {"dtick": 1} if ratio >= 100 else {"dtick": "D2"} if ratio >= 4 else {}


def _short(values: Sequence[float]) -> list[float | None]:
    """Five digits are more than a screen shows; a page of many runs would be several times as large with all."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values]
