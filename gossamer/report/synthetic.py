"""The synthetic experiment as a table, two figures and a page."""

import math
from pathlib import Path

from gossamer._common.files import check_writable, to_json, write_text
from gossamer.experiments.synthetic import SyntheticResult
from gossamer.report.figures import check_matplotlib, save_figure
from gossamer.report.page import code, drawing, heading, page, paragraph, table
from gossamer.report.synthetic_figures import synthetic_figures

PAGE = "report.html"


def check_report(directory: Path, json: Path | None = None) -> None:
    """Refuse, before any work is done, what `write_report` and `write_json` would refuse after it."""
    check_matplotlib()
    for path in (directory / PAGE, json):
        if path is not None:
            check_writable(path)


def table_rows(result: SyntheticResult) -> tuple[list[str], list[list[str]]]:
    """Head and rows: the mean of |grad f(xbar)|^2 over the last quarter of the rounds, and the growth with zeta^2."""
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
    return head, rows


def explain(result: SyntheticResult) -> str:
    """What the table shows, in words."""
    c = result.config
    return (
        f"Mean of |grad f(xbar)|² over the last quarter of {c.rounds:,} rounds: {c.nodes} nodes, d = {c.dim}, "
        f"{c.topology}, step size {c.lr:g}, beta {c.beta:g}, sigma² = {c.sigma2:g}, seed {c.seed}"
        + (f", mean over {c.draws} draws of b" if c.draws > 1 else "")
        + f". The closed-form stall is where the method would stop without noise at zeta² = {c.zeta2[-1]:g}. All "
        "methods use the same step size: a very large value belongs to one that is still on its way."
    )


def write_json(result: SyntheticResult, path: Path) -> None:
    """For every method and zeta^2, the curve and the mean over the last quarter of the rounds."""
    write_text(path, to_json(result, indent=1) + "\n")


def write_report(result: SyntheticResult, directory: Path, command: str) -> Path:
    """Write both figures (PNG and SVG) and the page into `directory`; returns the page's path."""
    figures = synthetic_figures(result)
    for name, figure in figures.items():
        save_figure(figure, directory / name)
    head, rows = table_rows(result)
    titles = [cells[0].title for cells in result.by_method.values()]
    best = titles.index("Momentum Tracking") if "Momentum Tracking" in titles else None
    sections = [
        paragraph(
            "Every node holds a quadratic of its own; zeta² says how different they are. A method that is robust to "
            "heterogeneity reaches the same level in every column. The others stop at a distance that grows with zeta²."
        ),
        table(head, rows, best),
        paragraph(explain(result), note=True),
        *(paragraph(note, note=True) for note in result.notes),
        heading("The long run"),
        drawing(figures["long_run"], "squared gradient norm of the mean model over all rounds, by method"),
        heading("The initial phase"),
        drawing(figures["initial_phase"], "squared gradient norm of the mean model over the first rounds, by method"),
        heading("Reproduce"),
        code(command),
    ]
    path = directory / PAGE
    lead = "Momentum Tracking and the methods it is compared with, on quadratics that differ from node to node."
    write_text(path, page("Gossamer: the synthetic experiment", lead, sections))
    return path
