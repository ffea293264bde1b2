"""A run is a directory: what was asked, what was measured, where it got to, and whether it is done.

    run.json          the experiment, its label, the graph, the partition, the environment
    metrics.jsonl     one line of figures per evaluation
    checkpoints/      what is needed to go on; removed when the run is done
    done.json         the marker: done, diverged or failed, and why; a run without it is unfinished

`seconds` in done.json is the wall-clock time of all attempts together, evaluations and repeated rounds included; of an
attempt that was killed it counts the time until the last file that the attempt wrote. `seconds` in a row of figures is
the time of the rounds alone, each counted once.

Every file is written beside its place and then renamed, so a directory is never half of anything.
"""

import json
import logging
import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gossamer._common.files import without_infinities, write_text
from gossamer._common.formatting import said
from gossamer._common.metrics import Row
from gossamer.errors import GossamerError, InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.versions import versions_of

log = logging.getLogger("gossamer")

STATUSES = ("done", "diverged", "failed")
"""How a run can have ended."""

_NEEDED = ("round", "epoch", "accuracy")
"""Figures without which a row says nothing."""


@dataclass(frozen=True)
class StoredRun:
    """A run on disk, read when something of it is asked for."""

    directory: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """What run.json holds: id, cell, label, network, experiment, environment, and `versions_of` the experiment.

        Unless the run failed before its data was there, also graph and partition.
        """
        path = self.directory / "run.json"
        about = read_json(path)
        named = all(isinstance(about.get(key), str) for key in ("id", "cell", "label"))
        if not named or not all(isinstance(about.get(key, {}), dict) for key in ("experiment", "environment")):
            raise InputError(f"{path} does not describe a run; delete this directory to make it again.")
        return about

    @cached_property
    def experiment(self) -> Experiment:
        """What was asked."""
        return Experiment.from_dict(self.about["experiment"], str(self.directory / "run.json"))

    @property
    def label(self) -> str:
        """The method as tables and figures name it."""
        return str(self.about["label"])

    @property
    def cell(self) -> str:
        """What this run shares with those that differ from it in seed and step size only."""
        return str(self.about["cell"])

    @cached_property
    def rows(self) -> list[Row]:
        """The figures of every evaluation so far, oldest first, up to a line that was cut off or holds no figures."""
        path = self.directory / "metrics.jsonl"
        if not path.exists():
            return []
        rows = []
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise InputError(f"Cannot read {path}: {error.strerror}.") from None
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                break
            if not isinstance(row, dict) or not all(_is_number(row.get(key)) for key in _NEEDED):
                break
            rows.append(row)
        return rows

    @cached_property
    def outcome(self) -> dict[str, Any] | None:
        """What done.json holds: status (one of STATUSES), reason, seconds; None while unfinished."""
        path = self.directory / "done.json"
        if not path.exists():
            return None
        outcome = read_json(path)
        if outcome.get("status") not in STATUSES or (outcome["status"] != "done" and "reason" not in outcome):
            raise InputError(f"{path} does not say how the run ended; delete this directory to make it again.")
        return outcome

    @property
    def status(self) -> str:
        """done, diverged, failed or unfinished."""
        return str(self.outcome["status"]) if self.outcome else "unfinished"

    @property
    def status_in_plan(self) -> str:
        """The status, or "to make" for a run that nobody has begun or that is outdated."""
        return self.status if (self.directory / "run.json").exists() and not self.outdated else "to make"

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do: a failed run may be tried again, a diverged one would diverge again."""
        return self.status in ("done", "diverged") and not self.outdated

    @property
    def outdated(self) -> str | None:
        """What came from a file that has changed since, as far as is known here: method, topology or None."""
        try:
            then: dict[str, str] = self.about.get("versions", {})
            now = versions_of(self.experiment) if then else {}
        except GossamerError:
            return None
        return next((key for key, version in now.items() if then.get(key, version) != version), None)


def find_runs(*places: Path | str) -> list[StoredRun]:
    """Every run in the given directories, each of which is a run or holds runs (at any depth), ordered by name."""
    found = []
    for place in map(Path, places):
        if not place.is_dir():
            raise InputError(f"There is no directory {place}; give one that holds runs.")
        found += [StoredRun(path.parent) for path in sorted(place.rglob("run.json"))]
    # Places may overlap.
    found = [run for run in {run.directory.resolve(): run for run in found}.values() if _is_readable(run)]
    if not found:
        raise InputError(f"No runs in {', '.join(map(str, places))}: a run is a directory with a run.json.")
    return found


def runs_of(experiments: Iterable[Experiment], directory: Path) -> list[StoredRun]:
    """The runs of these experiments that are in `directory`; one that cannot be read is left out with a warning."""
    begun = (StoredRun(directory / e.id) for e in experiments if (directory / e.id / "run.json").exists())
    return [run for run in begun if _is_readable(run)]


def _is_readable(run: StoredRun) -> bool:
    try:
        return bool(run.experiment) and (run.outcome is None or bool(run.outcome)) and run.rows is not None
    except GossamerError as error:
        log.warning("%s It is left out.", error)
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def refuse_another(directory: Path, experiment: Experiment, network: str) -> None:
    """Refuse a directory that holds a run of other settings, of the other network, or of another version of a method.

    An outdated run of the same settings is not refused: it is to be made again.
    """
    run = StoredRun(directory)
    if not (directory / "run.json").exists() or not _is_readable(run):
        return
    theirs_network = run.about.get("network", network)
    if (run.about["id"], theirs_network) == (experiment.id, network):
        return
    # Where no model is named the usual one is meant.
    ours = {**experiment.settings, "network": network}
    theirs = {**run.about["experiment"], "model": run.experiment.model_name, "network": theirs_network}
    key = next((k for k in ours if theirs.get(k) != ours[k]), None)
    if key is not None:
        raise InputError(
            f"{directory} holds another run: its {key} is {said(theirs.get(key))}, this one's is {said(ours[key])}; "
            f"choose another directory, or delete it."
        )
    if not run.outdated:
        raise InputError(
            f"{directory} holds a run of the same settings, but its method had other hyper-parameters then; choose "
            f"another directory, or delete it."
        )


def clear(directory: Path) -> None:
    """Remove a run, as if it had not been begun. What it was goes last, so that half of this can be done again."""
    (directory / "done.json").unlink(missing_ok=True)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    (directory / "metrics.jsonl").unlink(missing_ok=True)
    (directory / "run.json").unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()


def add_row(directory: Path, row: Row) -> None:
    """Put a row into metrics.jsonl, in the place of any that a run before a crash left for the same round or later."""
    rows = [r for r in StoredRun(directory).rows if r["round"] < row["round"]]
    lines = [json.dumps(without_infinities(r)) + "\n" for r in [*rows, row]]
    write_text(directory / "metrics.jsonl", "".join(lines))


def write_json(path: Path, value: Any) -> None:
    """Write JSON in one piece."""
    write_text(path, json.dumps(without_infinities(value), indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or a sentence."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {error}; delete this run's directory to make it again.") from None
    return value
