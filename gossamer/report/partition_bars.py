"""Who holds what, for matplotlib: one stacked bar per node, one colour per class."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gossamer.report.charts import class_colours
from gossamer.report.figures import load_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMES = 20
"""A legend of more classes would be longer than the bars are high."""


def bars_figure(
    counts: Sequence[Sequence[int]], classes: Sequence[str], title: str, size: tuple[float, float]
) -> "Figure":
    """`counts` [nodes][classes] with a legend of the classes; `size` in inches."""
    figure: Figure = load_matplotlib().figure.Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    draw_bars(axes, counts, classes)
    axes.set(ylabel="samples", title=title)
    if len(classes) <= _MOST_NAMES:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], title="class", loc="outside right center", frameon=False)
    return figure


def draw_bars(axes: "Axes", counts: Sequence[Sequence[int]], classes: Sequence[str]) -> None:
    """The bars alone, labelled by their classes."""
    below = [0] * len(counts)
    for k, (name, colour) in enumerate(zip(classes, class_colours(len(classes)), strict=True)):
        heights = [row[k] for row in counts]
        axes.bar(range(len(counts)), heights, bottom=below, color=colour, label=str(name), width=0.85)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(xlabel="node")
    axes.locator_params(axis="x", integer=True)
