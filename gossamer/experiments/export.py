"""Runs as a table for other programs: CSV, or Parquet (pip install 'gossamer[data]')."""

import csv
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.experiments.index import COLUMNS, Index
from gossamer.experiments.store import StoredRun
from gossamer.files import replacing

Row = dict[str, Any]


def run_rows(places: Sequence[Path | str]) -> list[Row]:
    """One row per run: path, id, cell, label, status, reason, the experiment's fields, the last figures."""
    rows = []
    for place in map(Path, places):
        for row in Index(place).refresh():
            path = place / row["path"]
            rows.append({k: str(path) if k == "path" else row[k] for k in COLUMNS if k != "stamp"})
    if not rows:
        raise GossamerError(f"No runs in {', '.join(map(str, places))}: a run is a directory with a run.json.")
    return rows


def curve_rows(places: Sequence[Path | str]) -> list[Row]:
    """One row per evaluation of every run: which run it belongs to, then its figures. Per-node figures are joined."""
    keys = ("id", "label", "lr", "seed")
    rows = []
    for run in run_rows(places):
        start = {f"experiment_{k}" if k == "lr" else k: run[k] for k in keys}
        for row in StoredRun(Path(run["path"])).rows:
            plain = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()}
            rows.append({**start, **plain})
    return rows


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV or Parquet, as the name of the file says."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if path.suffix == ".csv":
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, columns)
            table.writeheader()
            table.writerows(rows)
    elif path.suffix == ".parquet":
        check_format(path)
        import pyarrow
        import pyarrow.parquet

        with replacing(path) as temporary:
            content = {column: [row.get(column) for row in rows] for column in columns}
            pyarrow.parquet.write_table(pyarrow.table(content), temporary)
    else:
        check_format(path)


def check_format(path: Path) -> None:
    """Refuse a file that cannot be written, before any run is read."""
    if path.suffix not in (".csv", ".parquet"):
        raise GossamerError(f"Cannot tell the format of {path}; let its name end in .csv or .parquet.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise GossamerError("Parquet needs pyarrow; run: pip install 'gossamer[data]', or write a .csv file.")
