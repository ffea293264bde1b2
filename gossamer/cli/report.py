"""`gossamer report`: stored runs as a page, as figures and as tables."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gossamer._common.formatting import say
from gossamer.errors import InputError


def report(
    *runs: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("report.html"),
    figures: Path | None = None,
    tables: Path | None = None,
    title: str = "",
) -> None:
    """Compare stored runs in one HTML file that opens without a network. Unfinished runs are marked.

    Example: gossamer report runs/ -o report.html --figures paper/figures --tables paper/tables

    Parameters
    ----------
    runs
        Directories of runs, or directories that contain them at any depth.
    out
        The HTML file.
    figures
        Directory for the same charts as PNG, SVG and PDF in a paper's style.
    tables
        Directory for the tables as Markdown, LaTeX (booktabs) and CSV.
    title
        The title of the page.
    """
    from gossamer.experiments.store import find_runs
    from gossamer.report import check_report, write_figures, write_report, write_tables
    from gossamer.report.comparison import collect
    from gossamer.report.figures import load_matplotlib

    if not runs:
        raise InputError("There is nothing to report on; give directories of runs, as in: gossamer report runs/.")
    found = find_runs(*runs)
    check_report(out)
    if figures is not None:
        load_matplotlib()
    comparison = collect(found)
    page = write_report(comparison, out, title=title)
    say(f"report: {page} ({len(found)} run{'s' if len(found) > 1 else ''})")
    if figures is not None:
        say(f"figures: {len(write_figures(comparison, figures))} files in {figures}")
    if tables is not None:
        say(f"tables: {len(write_tables(comparison, tables))} files in {tables}")
