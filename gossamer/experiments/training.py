"""From an `Experiment` to a finished run directory."""

import dataclasses
import logging
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

import numpy
import torch

from gossamer import data, methods, models, topology
from gossamer._common.files import remove_unfinished_files
from gossamer._common.formatting import Row
from gossamer._version import __version__
from gossamer.data import Augmentation, Dataset, Erasing, NodeData, partition
from gossamer.engine import DivergenceError, StepSize, schedule, simulate
from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import (
    ATTEMPT,
    AttemptFile,
    StoredRun,
    add_row,
    clear,
    read_json,
    refuse_another,
    write_json,
)
from gossamer.network.waiting import TIMEOUT
from gossamer.topology import Topology

log = logging.getLogger("gossamer")


OWN_TEST = 0.2
"""The share of its samples on which a node tests its model, with evaluate = "own"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out; nothing here changes the result."""

    data_dir: Path | None = None
    workers: int | None = None
    device: str = "cpu"
    progress: bool | None = None
    timeout: float = TIMEOUT
    """Seconds until a real node gives up a silent peer."""
    callbacks: Sequence[Callable[[Row], None]] = ()
    """Called with the figures of each evaluation: loggers."""


def train(experiment: Experiment, directory: Path, execution: Execution | None = None) -> StoredRun:
    """Carry out an experiment in `directory`, or continue the run that is there.

    A run that diverges is finished: done.json records it with the reason, and nothing is raised. A run whose method or
    graph came from a file that has changed since is made again. A run that fails before its first evaluation leaves no
    files.
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
        outcome["gradients"] = _simulate(experiment, nodes, graph, directory, execution)
    except DivergenceError as error:
        outcome = {"status": "diverged", "reason": str(error), "round": error.round, "node": error.node}
    except Exception:
        if new and not StoredRun(directory).rows:
            clear(directory)
        raise
    finish(directory, {**outcome, "seconds": time.perf_counter() - began})
    return StoredRun(directory)


def begin(directory: Path, about: dict[str, Any]) -> None:
    """Mark a run as unfinished, and record how long earlier attempts took."""
    (directory / "done.json").unlink(missing_ok=True)
    write_json(directory / "run.json", about)
    mark = directory / "checkpoints" / ATTEMPT
    for place in (directory, mark.parent):
        remove_unfinished_files(place)
    before = 0.0
    if mark.exists():
        # An attempt lasted from its mark to the last file that it wrote.
        files = [*directory.glob("metrics.jsonl"), *mark.parent.iterdir()]
        last = max(path.stat().st_mtime for path in files)
        before = read_json(mark, AttemptFile)["seconds_before"] + last - mark.stat().st_mtime
    write_json(mark, {"seconds_before": before})


def finish(directory: Path, outcome: dict[str, Any]) -> None:
    """Mark a run as finished, with the seconds of all attempts, and remove its checkpoints."""
    mark = directory / "checkpoints" / ATTEMPT
    before = read_json(mark, AttemptFile)["seconds_before"] if mark.exists() else 0.0
    write_json(directory / "done.json", {**outcome, "seconds": before + outcome["seconds"]}, make_directory=False)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def prepare(experiment: Experiment, data_dir: Path | None = None) -> tuple[NodeData, Topology]:
    """The data of every node and the graph."""
    dataset = _augmented(_load(experiment.dataset, data_dir), experiment.augment)
    own = experiment.evaluate == "own"
    if not own and not len(dataset.test_targets):
        raise InputError(
            f"The dataset {dataset.name} has no test samples to evaluate on; give Dataset.from_tensors a test=, or set "
            f'evaluate = "own".'
        )
    recipe = partition.get(experiment.partition, experiment.nodes, experiment.seed)
    nodes = dataset.split(recipe, own_test=OWN_TEST if own else 0.0)
    graph = topology.get(experiment.topology, experiment.nodes, weights=experiment.weights, seed=experiment.seed)
    return nodes, graph


def describe(experiment: Experiment, nodes: NodeData | None, graph: Topology | None, network: str) -> dict[str, Any]:
    """The content of run.json; nodes and graph are None for a run that failed before they were made."""
    about: dict[str, Any] = {
        "id": experiment.id,
        "cell": experiment.cell,
        "label": experiment.label,
        "network": network,
        "experiment": experiment.to_dict(),
        "metric": dataclasses.asdict(experiment.metric_facts),
        "versions": experiment.file_versions,
    }
    if graph is not None:
        about["graph"] = describe_graph(graph)
    if nodes is not None:
        counts = nodes.partition.label_counts.tolist()
        about["partition"] = {
            "recipe": nodes.partition.recipe,
            "classes": nodes.dataset.group_names[: len(counts[0])],
            "counts": counts,
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
    evaluations: int | None
    evaluate: str


def length_of(experiment: Experiment) -> Length:
    """The step sizes, the rounds or epochs, and the number of evaluations."""
    return {
        "lr": schedule.get(experiment.schedule, experiment.lr, experiment.warm_up),
        "epochs": None if experiment.rounds else experiment.epochs,
        "rounds": experiment.rounds or None,
        "evaluations": experiment.evaluations or None,
        "evaluate": experiment.evaluate,
    }


def _simulate(experiment: Experiment, nodes: NodeData, graph: Topology, directory: Path, execution: Execution) -> str:
    """Run the experiment; returns how its gradients were computed."""
    run = simulate(
        models.get(experiment.model_name),
        nodes,
        methods.get(experiment.method),
        graph,
        **length_of(experiment),
        loss=experiment.loss,
        metric=experiment.metric or None,
        batch_size=experiment.batch_size,
        seed=experiment.seed,
        weight_decay=experiment.weight_decay,
        decoupled=experiment.decoupled,
        inner=experiment.inner or None,
        every=experiment.every,
        clip=experiment.clip or None,
        churn=experiment.churn or None,
        node_weight=experiment.node_weight,
        nonfinite=experiment.nonfinite,
        device=execution.device,
        workers=execution.workers,
        checkpoint=directory / "checkpoints",
        checkpoint_every=None,
        callbacks=[lambda row: add_row(directory, row), *execution.callbacks],
        progress=execution.progress,
    )
    return run.simulation.gradients.form


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


def environment() -> dict[str, Any]:
    """Versions, thread count, git commit of the working directory, and the kind of machine, without host names."""
    return {
        "gossamer": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "numba": version("numba") if find_spec("numba") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


@cache
def _processor() -> str:
    """The processor's name, if it is known."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


@cache
def _commit() -> str | None:
    """The git commit of the working directory, with + if files have changed since; None without git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=5)
    return done.stdout.strip()
