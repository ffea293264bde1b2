"""Charts for the page: plotly's figures as plain dictionaries.

Written by hand, because plotly's own classes take longer to check a figure than a browser takes to draw it. Colours of
text and axes are left to the page's style sheet, so that they follow the reader's theme.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.report.line_charts import LineChart, Series
from gossamer.report.style import GREY, Look

Figure = dict[str, Any]

_FEW_POINTS = 30


def figure(chart: LineChart, looks: Mapping[str, Look]) -> Figure:
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
    if chart.points_only:
        layout["hovermode"] = "closest"
        layout["xaxis"]["showgrid"] = False
    return {"data": traces, "layout": layout}


def partition_figure(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> Figure:
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


def class_colours(number: int) -> list[str]:
    """Colours for the classes, none of them a method's: Tol's muted palette, or beyond ten classes a walk along it."""
    if number <= len(_MUTED):
        return list(_MUTED[:number])
    return [_mixed(k * (len(_RAMP) - 1) / (number - 1)) for k in range(number)]


_MUTED = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
_RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def _mixed(place: float) -> str:
    """The colour at a place between two anchors of the ramp."""
    k = min(int(place), len(_RAMP) - 2)
    mixed = (round(a + (place - k) * (b - a)) for a, b in zip(_RAMP[k], _RAMP[k + 1], strict=True))
    return "#" + "".join(f"{value:02X}" for value in mixed)


def _line(series: Series, look: Look, chart: LineChart) -> Figure:
    marked = chart.points_only or len(series.x) <= _FEW_POINTS
    size: Any = 8 if chart.points_only else 6
    if series.chosen is not None:
        size = [11 if x == series.chosen else 6 for x in series.x]
    trace: Figure = {
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
        trace["hovertemplate"] = f"node %{{text}}: %{{y:.1f}} %<extra>{series.method}</extra>"
    return trace


def _band(series: Series, look: Look) -> Figure:
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


def _layout(x_title: str, y_title: str) -> Figure:
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


def _log_ticks(chart: LineChart) -> Figure:
    """Labels at powers of ten, and over less than two of them also at 2 and 5: plotly would label every digit."""
    values = [y for s in chart.series for y in s.y]
    ratio = max(values) / min(values)
    return {"dtick": 1} if ratio >= 100 else {"dtick": "D2"} if ratio >= 4 else {}


def _short(values: Sequence[float]) -> list[float | None]:
    """Five digits are more than a screen shows; a page of many runs would be several times as large with all."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values]
