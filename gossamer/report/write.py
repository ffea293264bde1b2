"""From stored runs to files: the figures and the tables."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gossamer.experiments.store import StoredRun
from gossamer.report.comparison import Comparison, collect
from gossamer.report.paper_figures import FORMATS, figure_files
from gossamer.report.tables import table_files


def write_figures(
    runs: Iterable[StoredRun] | Comparison, directory: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write the report's charts as figures for a paper; returns their paths."""
    return figure_files(collect(runs), directory, formats)


def write_tables(runs: Iterable[StoredRun] | Comparison, directory: Path) -> list[Path]:
    """Write the report's tables as Markdown, LaTeX and CSV; returns their paths."""
    return table_files(collect(runs), directory)
