"""From an `Experiment` to a finished run directory."""

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer import data, methods, models, topology
from gossamer.data import Augmentation, Dataset, Erasing, NodeData, partition
from gossamer.engine import DivergenceError, simulate, step_sizes
from gossamer.engine.run import rounds_per_epoch
from gossamer.experiments.environment import environment
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import Row, StoredRun, add_row, refuse_another, write_json
from gossamer.topology import Topology


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

    A run that diverges is finished: it is marked so, with the reason, and nothing is raised.
    """
    execution = execution or Execution()
    refuse_another(directory, experiment, "simulated")
    if StoredRun(directory).finished:
        return StoredRun(directory)
    experiment.check()
    nodes, graph = prepare(experiment, execution.data_dir)
    write_json(directory / "run.json", describe(experiment, nodes, graph, "simulated"))
    began = time.perf_counter()
    outcome: dict[str, Any] = {"status": "done"}
    try:
        _simulate(experiment, nodes, graph, directory, execution)
    except DivergenceError as error:
        outcome = {"status": "diverged", "reason": str(error), "round": error.round, "node": error.node}
    finish(directory, {**outcome, "seconds": time.perf_counter() - began})
    return StoredRun(directory)


def finish(directory: Path, outcome: dict[str, Any]) -> None:
    """Mark a run as finished and drop what was kept to continue it."""
    write_json(directory / "done.json", outcome)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def prepare(experiment: Experiment, data_dir: Path | None = None) -> tuple[NodeData, Topology]:
    """The data of every node and the graph."""
    dataset = _augmented(_load(experiment.dataset, data_dir), experiment.augment)
    nodes = dataset.split(partition.get(experiment.partition, experiment.nodes, experiment.seed))
    graph = topology.get(experiment.topology, experiment.nodes, weights=experiment.weights, seed=experiment.seed)
    return nodes, graph


def describe(experiment: Experiment, nodes: NodeData, graph: Topology, network: str) -> dict[str, Any]:
    """What run.json holds."""
    return {
        "id": experiment.id,
        "cell": experiment.cell,
        "label": experiment.label,
        "network": network,
        "experiment": experiment.to_dict(),
        "graph": describe_graph(graph),
        "partition": {
            "recipe": nodes.partition.recipe,
            "classes": list(nodes.dataset.classes),
            "counts": nodes.partition.label_counts.tolist(),
            "label_distance": nodes.partition.label_distance,
        },
        "environment": environment(),
    }


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


def _simulate(experiment: Experiment, nodes: NodeData, graph: Topology, directory: Path, execution: Execution) -> None:
    per_epoch = rounds_per_epoch(nodes, experiment.batch_size)
    total = experiment.rounds or round(experiment.epochs * per_epoch)
    simulate(
        models.get(experiment.model_name),
        nodes,
        methods.get(experiment.method),
        graph,
        lr=step_sizes.get(experiment.schedule, experiment.lr, experiment.warm_up),
        batch_size=experiment.batch_size,
        rounds=total,
        seed=experiment.seed,
        weight_decay=experiment.weight_decay,
        clip=experiment.clip or None,
        node_weight=experiment.node_weight,
        evaluate_every=total / per_epoch / experiment.evaluations,
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
