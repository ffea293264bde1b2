"""Single drawings: a graph, a partition, the learning curve of one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._common.files import replacing
from gossamer.errors import InputError
from gossamer.report.figures import load_matplotlib, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gossamer.experiments.store import StoredRun
    from gossamer.topology import Topology

FORMATS = (".png", ".svg", ".pdf")


def draw_topology(graph: "Topology", path: Path) -> None:
    """The nodes and every edge that is ever used, into a .png, .svg or .pdf file."""
    from gossamer.experiments.training import describe_graph
    from gossamer.report.paper_figures import graph_figure

    _check_format(path)
    _save(graph_figure(describe_graph(graph)), path)


def draw_partition(
    counts: Sequence[Sequence[int]], path: Path, title: str = "", class_names: Sequence[str] | None = None
) -> None:
    """One stacked bar per row of `counts` [nodes][classes], one colour per class, into a .png, .svg or .pdf file."""
    from gossamer.report.partition_bars import bars_figure

    classes = len(counts[0])
    names = [str(label) for label in range(classes)] if class_names is None else list(class_names)
    if len(names) != classes:
        raise InputError(f"A chart of {classes} classes needs {classes} class names, not {len(names)}.")
    _check_format(path)
    _save(bars_figure(counts, names, title, (min(4 + 0.35 * len(counts), 16), 4)), path)


def draw_curve(run: "StoredRun", path: Path) -> None:
    """Accuracy over epochs: mean, the range over nodes, and the averaged model, into a .png, .svg or .pdf file."""
    if not run.rows:
        raise InputError(f"{run.directory} has no figures yet, so there is nothing to draw.")
    _check_format(path)
    figure: Figure = load_matplotlib().figure.Figure(figsize=(5.2, 3.4), layout="constrained")
    ax = figure.subplots()
    epochs = [row["epoch"] for row in run.rows]
    lowest, highest = ([100 * row[key] for row in run.rows] for key in ("accuracy_min", "accuracy_max"))
    ax.fill_between(epochs, lowest, highest, color="#D55E00", alpha=0.2, lw=0, label="worst to best node")
    ax.plot(epochs, [100 * row["accuracy"] for row in run.rows], color="#D55E00", label="mean over nodes")
    ax.plot(epochs, [100 * row["averaged_accuracy"] for row in run.rows], "k--", lw=1, label="averaged model")
    ax.set(xlabel="epoch", ylabel="test accuracy (%)", title=run.label)
    ax.legend(frameon=False)
    ax.grid(alpha=0.25)
    _save(figure, path)


def _check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"Cannot draw into {path}: its name must end in {', '.join(FORMATS)}.")


def _save(figure: "Figure", path: Path) -> None:
    with replacing(path) as temporary:
        render(figure, temporary, path.suffix[1:].lower())
