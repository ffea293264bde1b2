"""Single drawings: a graph, the learning curve of one run."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError
from gossamer.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gossamer.experiments.store import StoredRun
    from gossamer.topology import Topology

FORMATS = (".png", ".svg", ".pdf")


def draw_topology(graph: "Topology", path: Path) -> None:
    """The nodes on a circle and every edge that is ever used, into a .png, .svg or .pdf file."""
    figure = _figure(path, (4.2, 4.4))
    ax = figure.subplots()
    places = [(math.sin(2 * math.pi * i / graph.n), math.cos(2 * math.pi * i / graph.n)) for i in range(graph.n)]
    for i, j in graph.graph.edges.tolist():
        ax.plot(*zip(places[i], places[j], strict=True), color="#7F7F7F", lw=1, zorder=1)
    size = max(20, 420 - 6 * graph.n)
    ax.scatter([x for x, _ in places], [y for _, y in places], s=size, color="#0072B2", zorder=2)
    if graph.n <= 40:
        for i, (x, y) in enumerate(places):
            ax.annotate(str(i), (x, y), ha="center", va="center", color="white", fontsize=9, zorder=3)
    ax.set_title(
        f"{graph.name}: {graph.n} nodes, p = {graph.p:.3g}, spectral gap {graph.spectral_gap:.3g}", fontsize=10
    )
    ax.set_aspect("equal")
    ax.axis("off")
    _save(figure, path)


def draw_curve(run: "StoredRun", path: Path) -> None:
    """Accuracy over epochs: mean, the range over nodes, and the averaged model, into a .png, .svg or .pdf file."""
    if not run.rows:
        raise GossamerError(f"{run.directory} has no figures yet, so there is nothing to draw.")
    figure = _figure(path, (5.2, 3.4))
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


def _figure(path: Path, size: tuple[float, float]) -> "Figure":
    if path.suffix not in FORMATS:
        raise GossamerError(f"Cannot draw into {path}: its name must end in {', '.join(FORMATS)}.")
    from gossamer.report.figures import check_matplotlib

    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=160)
