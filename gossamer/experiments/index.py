"""One row per run in sqlite, so that thousands of runs are looked up at once.

`index.sqlite` lies beside the runs and holds nothing that is not in their directories: it is brought up to date before
it is asked, made anew when it is damaged or of another version, and may be deleted at any time.
"""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import StoredRun

FILE = "index.sqlite"
SECONDS_TO_WAIT = 60.0
"""How long to wait for another process that is writing the index."""

log = logging.getLogger("gossamer")

_SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}
_FIGURES = ("accuracy", "validation_accuracy", "averaged_accuracy", "loss", "consensus_distance", "bytes_sent")
COLUMNS: dict[str, type] = {
    "path": str,
    "id": str,
    "cell": str,
    "label": str,
    "status": str,
    "reason": str,
    **Experiment.keys(),
    **dict.fromkeys((f"final_{name}" for name in _FIGURES), float),
    "last_round": int,
    "seconds": float,
    "stamp": str,
}
"""What is known of a run; `stamp` tells whether its files have changed since they were read."""


class Index:
    """The runs in a directory, at any depth."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise GossamerError(f"There is no directory {self.directory}; give one that holds runs.")

    def refresh(self) -> list[dict[str, Any]]:
        """Bring the index up to date (only runs whose files have changed are read) and return all its rows."""
        path = self.directory / FILE
        try:
            return self._refresh(str(path))
        except sqlite3.OperationalError as error:
            # A directory that may only be read, or a disk that is full: the runs themselves can still be read.
            log.info("The index %s cannot be used (%s); the runs are read one by one.", path, error)
        except sqlite3.DatabaseError as error:
            log.info("The index %s is damaged (%s) and is made anew.", path, error)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                return self._refresh(str(path))
        return self._refresh(":memory:")

    def _refresh(self, path: str) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(path, timeout=SECONDS_TO_WAIT)) as connection:
            connection.row_factory = sqlite3.Row
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                _prepare(connection)
                known = dict(connection.execute("SELECT path, stamp FROM runs").fetchall())
                present = dict(_stamps(self.directory))
                changed = [name for name, stamp in present.items() if known.get(name) != stamp]
                gone = [(name,) for name in known if name not in present or name in changed]
                connection.executemany("DELETE FROM runs WHERE path = ?", gone)
                rows = (row for name in changed if (row := self._row(name, present[name])) is not None)
                marks = ", ".join(f":{column}" for column in COLUMNS)
                connection.executemany(f"INSERT OR REPLACE INTO runs VALUES ({marks})", rows)
            return [dict(row) for row in connection.execute("SELECT * FROM runs ORDER BY path")]

    def _row(self, name: str, stamp: str) -> dict[str, Any] | None:
        try:
            return {**index_row(StoredRun(self.directory / name)), "path": name, "stamp": stamp}
        except (GossamerError, KeyError) as error:
            log.warning("The run %s is left out of the index: %s", self.directory / name, error)
            return None


def index_row(run: StoredRun) -> dict[str, Any]:
    """What the index knows of a run, read from its files."""
    last = run.rows[-1] if run.rows else {}
    outcome = run.outcome or {}
    return {
        "path": str(run.directory),
        "id": run.about["id"],
        "cell": run.cell,
        "label": run.label,
        "status": run.status,
        "reason": outcome.get("reason", ""),
        **run.experiment.to_dict(),
        **{f"final_{name}": last.get(name) for name in _FIGURES},
        "last_round": last.get("round"),
        "seconds": outcome.get("seconds", last.get("seconds")),
        "stamp": "",
    }


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the table, also in the place of one with other columns."""
    there = [row["name"] for row in connection.execute("PRAGMA table_info(runs)")]
    if there == list(COLUMNS):
        return
    columns = ", ".join(f"{name} {_SQL_TYPES[kind]}" for name, kind in COLUMNS.items())
    connection.execute("DROP TABLE IF EXISTS runs")
    connection.execute(f"CREATE TABLE runs ({columns}, PRIMARY KEY (path))")


def _stamps(directory: Path) -> Iterator[tuple[str, str]]:
    """Every run below `directory`, and the state of its files. There are no runs inside runs."""
    for place, folders, files in os.walk(directory):
        if "run.json" in files:
            folders.clear()
            yield os.path.relpath(place, directory), _stamp(Path(place))
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))


def _stamp(run: Path) -> str:
    parts = []
    for name in ("run.json", "metrics.jsonl", "done.json"):
        try:
            found = (run / name).stat()
            parts.append(f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}")
        except FileNotFoundError:
            parts.append("-")
    return " ".join(parts)
