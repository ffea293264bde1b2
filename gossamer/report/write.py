"""From stored runs to files: the page, the figures and the tables."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gossamer._common.files import check_writable, write_text
from gossamer.experiments.store import StoredRun
from gossamer.report.comparison import collect
from gossamer.report.comparison_page import comparison_page, plotly_script
from gossamer.report.paper_figures import FORMATS, figure_files
from gossamer.report.tables import table_files


def check_report(path: Path) -> None:
    """Refuse, before any work is done, what `write_report` would refuse after it."""
    plotly_script()
    check_writable(path)


def write_report(
    runs: Iterable[StoredRun],
    path: Path,
    *,
    title: str = "Gossamer: a comparison",
    command: str | None = None,
    opening: Sequence[str] = (),
) -> Path:
    """Write the report as one HTML file that needs no network; returns its path.

    `command` is what made the runs; without it the page shows how to make each of them on its own. `opening` are
    sections of HTML to begin with, made by the functions of `gossamer.report.page`.
    """
    write_text(path, comparison_page(collect(runs), title, command, opening))
    return path


def write_figures(runs: Iterable[StoredRun], directory: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write the report's charts as figures for a paper; returns their paths."""
    return figure_files(collect(runs), directory, formats)


def write_tables(runs: Iterable[StoredRun], directory: Path) -> list[Path]:
    """Write the report's tables as Markdown, LaTeX and CSV; returns their paths."""
    return table_files(collect(runs), directory)
