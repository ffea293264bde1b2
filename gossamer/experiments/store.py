"""The files of a run directory, and how they are read and written:

    run.json          `RunFile`: the experiment, its label, the graph, the partition, the environment
    metrics.jsonl     `MetricsRow`: one line of figures per evaluation
    checkpoints/      what is needed to continue; removed when the run is finished
    done.json         `DoneFile`: done, diverged or failed, and why; a run without it is unfinished

`seconds` in done.json is the wall-clock time of all attempts together, evaluations and repeated rounds included; an
attempt that was killed counts until the last file that it wrote. `seconds` in a row of figures is the time of the
rounds alone, each counted once.

Every file is written to a temporary file and then renamed, so none is ever half-written.
"""

import codecs
import logging
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from gossamer._common.files import to_json, write_text
from gossamer._common.formatting import ACCURACY, MetricFacts, Row, said
from gossamer.errors import DiskError, GossamerError, InputError
from gossamer.experiments.experiment import ADDED, Experiment
from gossamer.topology.graph import Graph

log = logging.getLogger("gossamer")

Count = Annotated[int, Meta(ge=0, le=2**53)]
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]


class StoredGraph(TypedDict):
    """The graph in run.json."""

    name: str
    nodes: Count
    period: Annotated[int, Meta(ge=1, le=2**53)]
    edges: list[Annotated[list[Count], Meta(min_length=2, max_length=2)]]
    p: float | None
    spectral_gap: float | None
    degree: Count


class StoredPartition(TypedDict):
    """The partition in run.json; `counts` holds a list per node with its samples of each class."""

    recipe: str
    classes: list[str]
    counts: list[list[Count]]
    label_distance: float | None


class StoredMetric(TypedDict):
    """The metric in run.json: `MetricFacts`."""

    name: str
    higher_is_better: bool
    percent: bool


class RunFile(TypedDict):
    """run.json. A run that failed before its data was loaded has neither graph nor partition."""

    id: str
    cell: str
    label: str
    network: NotRequired[Literal["simulated", "processes"]]
    experiment: dict[str, str | int | float | bool]
    metric: NotRequired[StoredMetric]
    """Older runs do not have it: they measured accuracy."""
    versions: NotRequired[dict[str, str]]
    """`Experiment.file_versions` when the run was made."""
    graph: NotRequired[StoredGraph]
    partition: NotRequired[StoredPartition]
    environment: NotRequired[dict[str, str | int | None]]


class MetricsRow(TypedDict):
    """A line of metrics.jsonl, as `gossamer.engine` makes it; null where there was nothing finite to measure.

    The figures of the run's metric stand beside these: `_FIGURES`.
    """

    round: Count
    epoch: Amount
    lr: NotRequired[float | None]
    test_samples: NotRequired[Count]
    """Those of the metric and the losses; older runs do not have it: they used the whole test set."""
    loss: NotRequired[float | None]
    loss_min: NotRequired[float | None]
    loss_max: NotRequired[float | None]
    node_loss: NotRequired[list[float | None]]
    averaged_loss: NotRequired[float | None]
    train_loss: NotRequired[float | None]
    consensus_distance: NotRequired[float | None]
    tracking_error: NotRequired[float | None]
    gradient_norm: NotRequired[float | None]
    bytes_sent: NotRequired[Amount | None]
    samples_per_second: NotRequired[Amount | None]
    seconds: NotRequired[Amount | None]
    present: NotRequired[list[Count]]
    """The nodes that are there, in the order of `node_loss`; without it all are."""
    changes: NotRequired[list[tuple[Count, Literal["leaves", "joins"], list[Count]]]]
    """What has changed since the last row: before which round, and which nodes."""


class DoneFile(TypedDict):
    """done.json."""

    status: Literal["done", "diverged", "failed"]
    reason: NotRequired[str]
    """Why a run diverged or failed."""
    round: NotRequired[Count]
    node: NotRequired[Count]
    """Where it diverged."""
    traceback: NotRequired[str]
    seconds: NotRequired[Amount]
    gradients: NotRequired[str]
    """How gradients were computed, which decides the last bits: "autograd", or the version and lanes of the kernels."""


ATTEMPT = "attempt.json"
"""In the directory of checkpoints: its date is when this attempt began."""


class AttemptFile(TypedDict):
    """attempt.json: how long earlier attempts took."""

    seconds_before: float


class SweepFile(TypedDict):
    """sweep.json, beside the runs of a sweep."""

    runs: list[Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]]
    """The ids of all runs, begun or not, of the sweep that was started last."""


PLAN = "sweep.json"


_FIGURES = ("{}", "{}_min", "{}_max", "node_{}", "averaged_{}", "validation_{}")
"""The figures of a metric in a row: the mean over the nodes, which is always there, the smallest, the largest, those of
all nodes, the averaged model's, and the mean on the validation set."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What is raised for bytes that are no JSON of the wanted form; the last one for brackets within brackets."""


@dataclass(frozen=True)
class StoredRun:
    """A run on disk. Its files are read when they are first needed."""

    directory: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """What run.json holds: a `RunFile`."""
        return read_json(self.directory / "run.json", RunFile)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment that was asked for."""
        return Experiment.from_dict(self.about["experiment"], str(self.directory / "run.json"))

    @property
    def network(self) -> str:
        """The network that it ran on: "simulated", or "processes" where every node was one."""
        return str(self.about.get("network", "simulated"))

    @property
    def settings(self) -> dict[str, Any]:
        """The experiment's settings, and the network that it ran on."""
        return {**self.experiment.settings, "network": self.network}

    @cached_property
    def metric(self) -> MetricFacts:
        """What was measured, and whether higher is better."""
        return MetricFacts(**self.about["metric"]) if "metric" in self.about else ACCURACY

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
        """The figures of every evaluation so far, oldest first, up to the first damaged or misplaced line."""
        path, rows = self.directory / "metrics.jsonl", list[Row]()
        try:
            metric = self.metric
        except GossamerError:  # run.json is not there, or damaged
            metric = ACCURACY
        for line in _read(path).splitlines() if path.exists() else []:
            try:
                row = _row(line, metric)
            except _UNREADABLE:
                break
            if rows and not (row["round"] > rows[-1]["round"] and row["epoch"] > rows[-1]["epoch"]):
                break
            rows.append(row)
        return rows

    @cached_property
    def outcome(self) -> dict[str, Any] | None:
        """What done.json holds: a `DoneFile`; None while unfinished."""
        path = self.directory / "done.json"
        if not path.exists():
            return None
        outcome = read_json(path, DoneFile)
        if outcome["status"] != "done" and "reason" not in outcome:
            raise _damaged(path, "Object missing required field `reason`")
        return outcome

    @property
    def status(self) -> str:
        """done, diverged, failed or unfinished."""
        return str(self.outcome["status"]) if self.outcome else "unfinished"

    @property
    def status_in_plan(self) -> str:
        """The status, or "to make" for a run that has not been started or is outdated."""
        return self.status if (self.directory / "run.json").exists() and not self.outdated else "to make"

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: a failed run may be tried again, a diverged one would diverge again."""
        return self.status in ("done", "diverged") and not self.outdated

    @property
    def outdated(self) -> str | None:
        """What came from a file that is known to have changed since: method, topology or None."""
        try:
            then: dict[str, str] = self.about.get("versions", {})
            now = self.experiment.file_versions if then else {}
        except GossamerError:
            return None
        return next((key for key, version in now.items() if then.get(key, version) != version), None)

    def check(self) -> None:
        """Refuse a run whose files cannot be read or do not fit each other."""
        experiment, _, path = self.experiment, self.outcome, self.directory / "run.json"
        try:
            str(self.directory).encode()
        except UnicodeError:
            raise InputError(f"The path {self.directory!a} is not text in UTF-8; rename the directory.") from None
        graph, partition = self.about.get("graph"), self.about.get("partition")
        if graph is not None:
            if graph["nodes"] != experiment.nodes:
                raise _damaged(path, f"its graph has {graph['nodes']} nodes, its experiment {experiment.nodes}")
            try:
                made = Graph(graph["nodes"], graph["edges"])
            except InputError as error:
                raise _damaged(path, str(error).rstrip(".")) from None
            if len(made.edges) != len(graph["edges"]) or not made.is_connected:
                raise _damaged(path, "its graph is not connected, or lists an edge twice")
        if partition is not None:
            counts, classes = partition["counts"], len(partition["classes"])
            if len(counts) != experiment.nodes or any(len(row) != classes for row in counts):
                raise _damaged(path, f"its partition is not one of {classes} classes over {experiment.nodes} nodes")
        for row in self.rows:
            per_node = [len(row[name]) for name in (f"node_{self.metric.name}", "node_loss") if name in row]
            there = row.get("present", range(experiment.nodes))
            known = max(there, default=experiment.nodes) < experiment.nodes
            if (row["epoch"] > 0) != (row["round"] > 0) or any(n != len(there) for n in per_node) or not known:
                raise _damaged(
                    self.directory / "metrics.jsonl",
                    f"the figures of round {row['round']} are not those of a run of {experiment.nodes} nodes",
                )


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
        run.check()
    except GossamerError as error:
        log.warning("%s It is left out.", error)
        return False
    return True


def planned(directory: Path) -> list[str]:
    """The ids of the runs that a sweep in this directory makes; none if there was no sweep."""
    path = directory / PLAN
    return list(read_json(path, SweepFile)["runs"]) if path.exists() else []


def seconds_so_far(directory: Path) -> tuple[float, float]:
    """How long a run that is being made took until its last evaluation, all attempts together, and how long ago it was.

    An attempt begins by writing run.json.
    """
    began, mark = (directory / "run.json").stat().st_mtime, directory / "checkpoints" / ATTEMPT
    rows = directory / "metrics.jsonl"
    last = max(began, rows.stat().st_mtime) if rows.exists() else began
    before = read_json(mark, AttemptFile)["seconds_before"] if mark.exists() else 0.0
    return before + last - began, max(0.0, time.time() - last)


def refuse_another(directory: Path, experiment: Experiment, network: str) -> None:
    """Refuse a file, and a directory with a run of other settings, of the other network, or of another version.

    An outdated run of the same settings is accepted: it will be made again.
    """
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file, but a run is a directory; choose another place.")
    run = StoredRun(directory)
    if not (directory / "run.json").exists() or not _is_readable(run):
        return
    theirs_network = run.about.get("network", network)
    if (run.about["id"], theirs_network) == (experiment.id, network):
        return
    ours = {**experiment.settings, "network": network}
    # What older versions did not record was as it is by default.
    known = {key: run.experiment.settings[key] for key in ("model", *ADDED)}
    theirs = {**run.about["experiment"], **known, "network": theirs_network}
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
    """Remove a run. run.json goes last, so that an interrupted removal can be repeated."""
    (directory / "done.json").unlink(missing_ok=True)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    (directory / "metrics.jsonl").unlink(missing_ok=True)
    (directory / "run.json").unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def add_row(directory: Path, row: Row) -> None:
    """Add a row to metrics.jsonl; it replaces rows that a crashed attempt left for the same round or later ones."""
    rows = [r for r in StoredRun(directory).rows if r["round"] < row["round"]]
    write_text(directory / "metrics.jsonl", "".join(to_json(r) + "\n" for r in [*rows, row]), make_directory=False)


def write_json(path: Path, value: Any, make_directory: bool = True) -> None:
    """Write JSON in one piece. Without `make_directory` the directory must be there."""
    write_text(path, to_json(value, indent=1) + "\n", make_directory)


def read_json(path: Path, kind: Any) -> dict[str, Any]:
    """The JSON object in a file of a run, if it has the keys and types of `kind`."""
    try:
        value: dict[str, Any] = msgspec.json.decode(_read(path), type=kind)
    except _UNREADABLE as error:
        raise _damaged(path, str(error)) from None
    return value


def _row(line: bytes, metric: MetricFacts) -> Row:
    """A line of metrics.jsonl; raises if something in it is no such figure."""
    told = msgspec.json.decode(line, type=dict[str, Any])
    checked = dict(msgspec.convert(told, MetricsRow))
    value: Any = Share if metric.percent else float
    for form in _FIGURES:
        key = form.format(metric.name)
        if key in told or key == metric.name:
            kind = list[value] if key.startswith("node_") else value if key == metric.name else value | None
            checked[key] = msgspec.convert(told.get(key), kind)
    return {key: checked[key] for key in told if key in checked}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DiskError(
            f"Cannot read {path}: {error.strerror}; check that it exists and that you may read it."
        ) from error


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"Cannot read {path}: {reason}; delete this run's directory to make it again.")
