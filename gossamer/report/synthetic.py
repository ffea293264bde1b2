"""The synthetic experiment: a table, two figures and a page."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from gossamer._common.files import check_writable, to_json, write_text
from gossamer.experiments.synthetic import SyntheticResult, initial_phase
from gossamer.report.figures import load_matplotlib, save
from gossamer.report.pages import render
from gossamer.report.style import line_style
from gossamer.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
PROPOSED = "Momentum Tracking"
"""The paper's method, set in bold."""
# A run that diverges is drawn up to here; a longer axis would flatten the others, and overflow.
HIGHEST = 1e12


def check_report(directory: Path, json: Path | None = None) -> None:
    """Raise now, before any work, what `write_report` and `write_json` would raise afterwards."""
    load_matplotlib()
    for path in (directory / PAGE, json):
        if path is not None:
            check_writable(path)


def levels(result: SyntheticResult) -> Table:
    """The mean of |grad f(xbar)|^2 over the last quarter of the rounds, per method and zeta^2."""
    head = ["method", "graph", *(f"zeta² = {z:g}" for z in result.config.zeta2), "closed-form stall", "seconds"]
    rows = []
    for cells in result.by_method.values():
        stall = cells[-1].stall
        rows.append(
            [
                cells[0].title,
                cells[0].topology,
                *(f"{c.tail_mean:.1e}" if math.isfinite(c.tail_mean) else "diverged" for c in cells),
                "–" if stall is None else f"{stall:.1e}",
                f"{sum(c.seconds for c in cells):.1f}",
            ]
        )
    best = frozenset((r, c) for r, row in enumerate(rows) for c in range(len(head)) if row[0] == PROPOSED)
    return Table(head, rows, best)


def explain(result: SyntheticResult) -> str:
    """The table's caption."""
    c = result.config
    return (
        f"Mean of |grad f(xbar)|² over the last quarter of {c.rounds:,} rounds: {c.nodes} nodes, d = {c.dim}, "
        f"{c.topology}, step size {c.lr:g}, beta {c.beta:g}, sigma² = {c.sigma2:g}, seed {c.seed}"
        + (f", mean over {c.draws} draws of b" if c.draws > 1 else "")
        + f". The closed-form stall is where the method would stop without noise at zeta² = {c.zeta2[-1]:g}. All "
        "methods use the same step size: a very large value means that the method has not converged yet."
    )


def write_json(result: SyntheticResult, path: Path) -> None:
    """For every method and zeta^2, the curve and the mean over the last quarter of the rounds."""
    write_text(path, to_json(result, indent=1) + "\n")


def write_report(result: SyntheticResult, directory: Path, command: str) -> Path:
    """Write both figures (PNG and SVG) and the page into `directory`; returns the page's path."""
    drawn = {}
    for name, figure in synthetic_figures(result).items():
        save(figure, directory / f"{name}.png")
        svg = save(figure, directory / f"{name}.svg")
        # Without the XML declaration before it, the SVG may stand inside the page.
        drawn[name] = Markup("<svg" + svg.read_text(encoding="utf-8").split("<svg", 1)[1])
    path = directory / PAGE
    text = render(
        "synthetic.html",
        title="Gossamer: the synthetic experiment",
        lead="Momentum Tracking and the methods it is compared with, on quadratics that differ from node to node.",
        levels=levels(result),
        notes=[explain(result), *result.notes],
        command=command,
        **drawn,
    )
    write_text(path, text)
    return path


def synthetic_figures(result: SyntheticResult) -> dict[str, "Figure"]:
    """The paper's two synthetic figures: the initial phase and the long run, one panel for each zeta^2."""
    rounds = result.config.rounds
    return {
        "initial_phase": _panels(result, upto=initial_phase(rounds), smooth=1),
        "long_run": _panels(result, upto=rounds, smooth=9),
    }


def _panels(result: SyntheticResult, upto: int, smooth: int) -> "Figure":
    matplotlib = load_matplotlib()
    zetas = result.config.zeta2
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure: Figure = matplotlib.figure.Figure(figsize=(3.4 * len(zetas) + 1.6, 3.3), layout="constrained")
        axes = figure.subplots(1, len(zetas), sharey=True, squeeze=False)
        for ax, zeta2 in zip(axes[0], zetas, strict=True):
            for cell in (c for c in result.cells if c.zeta2 == zeta2):
                points = zip(cell.rounds, cell.curve, strict=True)
                shown = _smoothed([(r, v) for r, v in points if r <= upto and v < HIGHEST], smooth)
                ax.plot([r for r, _ in shown], [v for _, v in shown], label=cell.title, **line_style(cell.method))
            ax.set(yscale="log", xlabel="round", title=rf"$\zeta^2 = {zeta2:g}$", xlim=(0, upto))
            ax.locator_params(axis="x", nbins=4)
            ax.grid(True, which="major", alpha=0.25)
        axes[0][0].set_ylabel(r"$\|\nabla f(\bar{x})\|^2$")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _smoothed(points: list[tuple[int, float]], width: int) -> list[tuple[int, float]]:
    """A running mean over `width` neighbouring points, so that noise does not hide the level."""
    half = width // 2
    values = [v for _, v in points]
    windows = [values[max(0, k - half) : k + half + 1] for k in range(len(values))]
    return [(r, sum(w) / len(w)) for (r, _), w in zip(points, windows, strict=True)]
