"""Runs as a table for other programs: CSV, or Parquet (pip install 'gossamer[data]')."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from gossamer._common.files import replacing
from gossamer._common.formatting import Row, write_csv
from gossamer.errors import InputError
from gossamer.experiments.store import StoredRun, find_runs

_FIGURES = ("loss", "test_samples", "consensus_distance", "bytes_sent")


def run_rows(places: Sequence[Path | str]) -> list[Row]:
    """One row per run: path, id, cell, label, network, status, reason, the experiment's fields, the last figures."""
    return [_run_row(run) for run in find_runs(*places)]


def curve_rows(places: Sequence[Path | str]) -> list[Row]:
    """One row per evaluation of every run: its run, then its figures, with a column per node: node_accuracy_0, ...

    Where nodes come and go, the columns of those that are away are empty, and "present" lists the others.
    """
    rows = []
    for run in find_runs(*places):
        e = run.experiment
        start = {"id": run.about["id"], "label": run.label, "experiment_lr": e.lr, "seed": e.seed}
        for row in run.rows:
            plain, nodes = dict(start), row.get("present", range(e.nodes))
            for key, value in row.items():
                if key == "present":
                    plain[key] = " ".join(map(str, value))
                elif key == "changes":
                    plain[key] = "; ".join(f"{at} {word} {' '.join(map(str, those))}" for at, word, those in value)
                elif isinstance(value, list):
                    plain |= {f"{key}_{n}": v for n, v in zip(nodes, value, strict=True)}
                else:
                    plain[key] = value
            rows.append(plain)
    return rows


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV or Parquet, by the suffix of the path."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if path.suffix == ".csv":
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            write_csv(file, [columns, *([row.get(column, "") for column in columns] for row in rows)])
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
    """Refuse a format that cannot be written, before any run is read."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"Cannot tell the format of {path}; let its name end in .csv or .parquet.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow; run: pip install 'gossamer[data]', or write a .csv file.")


def _run_row(run: StoredRun) -> Row:
    last, metric = run.rows[-1] if run.rows else {}, run.metric
    names = dict.fromkeys([metric.name, f"validation_{metric.name}", f"averaged_{metric.name}", *_FIGURES])
    outcome = run.outcome or {}
    return {
        "path": str(run.directory),
        "id": run.about["id"],
        "cell": run.cell,
        "label": run.label,
        "network": run.network,
        "status": run.status,
        "reason": outcome.get("reason", ""),
        **run.experiment.to_dict(),
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        **{f"final_{name}": last.get(name) for name in names},
        "last_round": last.get("round"),
        "seconds": outcome.get("seconds", last.get("seconds")),
    }
