"""`gossamer export`: runs as a table for other programs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gossamer._common.formatting import say


def export(
    *places: Path,
    output: Annotated[Path, Parameter(name=("--output", "-o"))] = Path("runs.csv"),
    curves: bool = False,
) -> None:
    """Write one line per run (settings, status, last figures) as CSV or Parquet.

    Example: gossamer export runs/tables -o runs.csv

    Parameters
    ----------
    places
        Directories that contain runs, at any depth; runs/ by default.
    output
        The file, whose name ends in .csv or .parquet.
    curves
        Write one line per evaluation instead of one per run.
    """
    from gossamer._common.files import check_writable
    from gossamer.experiments.export import check_format, curve_rows, run_rows, write_table

    check_format(output)
    check_writable(output)
    rows = (curve_rows if curves else run_rows)(places or (Path("runs"),))
    write_table(rows, output)
    say(f"{output}: {len(rows)} lines")
