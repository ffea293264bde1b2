"""From an `Experiment` to a finished run directory."""

import dataclasses
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

from gossamer import data, methods, models, topology
from gossamer._common.metrics import Row
from gossamer.data import Augmentation, Dataset, Erasing, NodeData, partition
from gossamer.engine import DivergenceError, StepSize, schedule, simulate
from gossamer.experiments.environment import environment
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import StoredRun, add_row, clear, read_json, refuse_another, write_json
from gossamer.experiments.versions import versions_of
from gossamer.topology import Topology

log = logging.getLogger("gossamer")


ATTEMPT = "attempt.json"
"""Beside the checkpoints: when this attempt began, by its date, and how long those before took."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out. None of it changes the result."""

    data_dir: Path | None = None
    workers: int | None = None
    device: str = "cpu"
    progress: bool | None = None
    callbacks: Sequence[Callable[[Row], None]] = ()
    """Called with the figures of each evaluation: loggers."""


def train(experiment: Experiment, directory: Path, execution: Execution | None = None) -> StoredRun:
    """Carry out an experiment in `directory`, from where it stopped if it has been begun there.

    A run that diverges is finished: it is marked so, with the reason, and nothing is raised. A run whose method or
    graph came from a file that has changed since is made again. What fails before its first figures leaves nothing.
    """
    execution = execution or Execution()
    refuse_another(directory, experiment, "simulated")
    if StoredRun(directory).finished:
        return StoredRun(directory)
    experiment.check()
    nodes, graph = prepare(experiment, execution.data_dir)
    changed = StoredRun(directory).outdated
    if changed:
        log.warning("%s was made with another version of the file of its %s and is made again.", directory, changed)
        clear(directory)
    new = not (directory / "run.json").exists()
    begin(directory, describe(experiment, nodes, graph, "simulated"))
    began = time.perf_counter()
    outcome: dict[str, Any] = {"status": "done"}
    try:
        _simulate(experiment, nodes, graph, directory, execution)
    except DivergenceError as error:
        outcome = {"status": "diverged", "reason": str(error), "round": error.round, "node": error.node}
    except Exception:
        if new and not StoredRun(directory).rows:
            clear(directory)
        raise
    finish(directory, {**outcome, "seconds": time.perf_counter() - began})
    return StoredRun(directory)


def begin(directory: Path, about: dict[str, Any]) -> None:
    """Mark a run as under way, and note how long the attempts before this one took."""
    (directory / "done.json").unlink(missing_ok=True)
    write_json(directory / "run.json", about)
    mark = directory / "checkpoints" / ATTEMPT
    before = 0.0
    if mark.exists():
        # An attempt lasted from its mark to the last file that it wrote.
        files = [*directory.glob("metrics.jsonl"), *mark.parent.iterdir()]
        last = max(path.stat().st_mtime for path in files)
        before = read_json(mark)["seconds_before"] + last - mark.stat().st_mtime
    write_json(mark, {"seconds_before": before})


def finish(directory: Path, outcome: dict[str, Any]) -> None:
    """Mark a run as finished, with the seconds of all attempts, and drop what was kept to continue it."""
    mark = directory / "checkpoints" / ATTEMPT
    before = read_json(mark)["seconds_before"] if mark.exists() else 0.0
    write_json(directory / "done.json", {**outcome, "seconds": before + outcome["seconds"]})
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def prepare(experiment: Experiment, data_dir: Path | None = None) -> tuple[NodeData, Topology]:
    """The data of every node and the graph."""
    dataset = _augmented(_load(experiment.dataset, data_dir), experiment.augment)
    nodes = dataset.split(partition.get(experiment.partition, experiment.nodes, experiment.seed))
    graph = topology.get(experiment.topology, experiment.nodes, weights=experiment.weights, seed=experiment.seed)
    return nodes, graph


def describe(experiment: Experiment, nodes: NodeData | None, graph: Topology | None, network: str) -> dict[str, Any]:
    """What run.json holds; nodes and graph are None where a run failed before they were there."""
    about: dict[str, Any] = {
        "id": experiment.id,
        "cell": experiment.cell,
        "label": experiment.label,
        "network": network,
        "experiment": experiment.to_dict(),
        "versions": versions_of(experiment),
    }
    if graph is not None:
        about["graph"] = describe_graph(graph)
    if nodes is not None:
        about["partition"] = {
            "recipe": nodes.partition.recipe,
            "classes": list(nodes.dataset.classes),
            "counts": nodes.partition.label_counts.tolist(),
            "label_distance": nodes.partition.label_distance,
        }
    return {**about, "environment": environment()}


def describe_graph(graph: Topology) -> dict[str, Any]:
    """A graph as run.json holds it."""
    return {
        "name": graph.name,
        "nodes": graph.n,
        "period": graph.period,
        "edges": graph.graph.edges.tolist(),
        "p": graph.p,
        "spectral_gap": graph.spectral_gap,
        "degree": graph.degree,
    }


class Length(TypedDict):
    """How long an experiment is, as `simulate` and `schedule_of` take it."""

    lr: StepSize
    epochs: float | None
    rounds: int | None
    evaluations: int


def length_of(experiment: Experiment) -> Length:
    """The step sizes, the rounds or epochs, and the number of evaluations."""
    return {
        "lr": schedule.get(experiment.schedule, experiment.lr, experiment.warm_up),
        "epochs": None if experiment.rounds else experiment.epochs,
        "rounds": experiment.rounds or None,
        "evaluations": experiment.evaluations,
    }


def _simulate(experiment: Experiment, nodes: NodeData, graph: Topology, directory: Path, execution: Execution) -> None:
    simulate(
        models.get(experiment.model_name),
        nodes,
        methods.get(experiment.method),
        graph,
        **length_of(experiment),
        batch_size=experiment.batch_size,
        seed=experiment.seed,
        weight_decay=experiment.weight_decay,
        clip=experiment.clip or None,
        node_weight=experiment.node_weight,
        device=execution.device,
        workers=execution.workers,
        checkpoint=directory / "checkpoints",
        checkpoint_every=None,
        callbacks=[lambda row: add_row(directory, row), *execution.callbacks],
        progress=execution.progress,
    )


@lru_cache(maxsize=2)
def _load(name: str, data_dir: Path | None) -> Dataset:
    return data.load(name, data_dir)


def _augmented(dataset: Dataset, augment: str) -> Dataset:
    if augment == "usual":
        return dataset
    changed = None
    if augment == "erasing":
        changed = dataclasses.replace(dataset.augmentation or Augmentation(), erasing=Erasing())
    return dataclasses.replace(dataset, augmentation=changed)
