"""A partition as a picture."""

import os
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import GossamerError

FORMATS = (".png", ".svg", ".pdf")


def stacked_bars(
    counts: Sequence[Sequence[int]], path: str | Path, title: str = "", class_names: Sequence[str] | None = None
) -> Path:
    """Write one bar per row of `counts` [nodes][classes], a coloured piece per class; atomic; returns the path."""
    path = Path(path)
    classes = len(counts[0])
    names = [str(label) for label in range(classes)] if class_names is None else list(class_names)
    if len(names) != classes:
        raise GossamerError(f"A chart of {classes} classes needs {classes} class names, not {len(names)}.")
    if path.suffix.lower() not in FORMATS:
        raise GossamerError(f"A chart is written as {', '.join(FORMATS)}, not as '{path.name}': change the file name.")
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as missing:
        raise GossamerError("Drawing a partition needs matplotlib: pip install 'gossamer[report]'.") from missing

    figure = Figure(figsize=(min(4 + 0.35 * len(counts), 16), 4), layout="constrained")
    axes = figure.subplots()
    palette = colormaps["tab10" if classes <= 10 else "viridis"]
    bottom = [0] * len(counts)
    for label, name in enumerate(names):
        colour = palette(label if classes <= 10 else label / (classes - 1))
        heights = [row[label] for row in counts]
        axes.bar(range(len(counts)), heights, bottom=bottom, color=colour, label=name, width=0.85)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set(xlim=(-0.7, len(counts) - 0.3), ylim=(0, 1.05 * max(bottom)))
    axes.set(xlabel="node", ylabel="samples", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes <= 20:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], title="class", loc="outside right center", frameon=False)

    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        figure.savefig(temporary, dpi=150)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
