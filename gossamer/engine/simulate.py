"""`gossamer.simulate`: train one model across N nodes on this machine."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gossamer import methods, topology
from gossamer._common.checks import is_finite_number
from gossamer._common.metrics import Row
from gossamer._common.progress import progress_bar
from gossamer._common.signals import deferred_interrupts
from gossamer.data import NodeData
from gossamer.engine import checkpoint as checkpoints
from gossamer.engine.devices import device_of
from gossamer.engine.history import History
from gossamer.engine.identity import identity_of
from gossamer.engine.node_models import Models
from gossamer.engine.pace import Pace, interval, pace_of
from gossamer.engine.simulation import DivergenceError, Settings, Simulation
from gossamer.engine.start import ModelFactory, make_model
from gossamer.engine.step_sizes import Lr, plain_step_size
from gossamer.engine.workers import Workers
from gossamer.errors import InputError
from gossamer.methods.contract import MethodChoice
from gossamer.topology import Topology

SECONDS_BETWEEN_CHECKPOINTS = 60.0


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: what was measured, and every node's model.

    The models are copies of their own, in evaluation mode, that can be saved or trained further. They compute what
    yours does. Where yours is an `nn.Sequential`, a max pool stands before the ReLU that preceded it (under that ReLU's
    name): the same numbers for less work, and the same `state_dict`. Buffers (BatchNorm's running statistics) are every
    node's own; the averaged model has their mean.

    >>> from gossamer import data, models
    >>> nodes = data.load("digits").split(data.partition.iid(nodes=2))
    >>> run = simulate(models.SmallCNN, nodes, "dsgd", "ring", lr=0.1, batch_size=32, rounds=1)
    >>> len(run.models), type(run.averaged_model()).__name__
    (2, 'SmallCNN')
    """

    history: History
    models: Sequence[nn.Module]
    simulation: Simulation

    def __repr__(self) -> str:
        return f"Run(accuracy={self.accuracy:.4f}, nodes={len(self.models)}, history={self.history})"

    @property
    def accuracy(self) -> float:
        """The mean over the nodes of each node's own model on the common test set, at the end; nan without one."""
        accuracy = self.history.last["accuracy"]
        return math.nan if accuracy is None else float(accuracy)

    def averaged_model(self) -> nn.Module:
        """The model whose parameters and floating-point buffers are the mean over the nodes."""
        return self.simulation.models.independent_average()


def simulate(
    model: ModelFactory | nn.Module,
    data: NodeData,
    method: MethodChoice,
    graph: Topology | str,
    *,
    lr: Lr,
    batch_size: int = 100,
    epochs: float | None = None,
    rounds: int | None = None,
    seed: int = 0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    node_weight: str = "equal",
    device: str = "cpu",
    workers: int | None = None,
    evaluate_every: float | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: float | None = 1.0,
    callbacks: Sequence[Callable[[Row], None]] = (),
    progress: bool | None = None,
) -> Run:
    """Train one model across the nodes of `data` with `method` on `graph`, all on this machine.

    model
        A class such as `gossamer.models.LeNet` that is called with (shape, classes), any function without arguments
        that makes an `nn.Module`, or a module. All nodes start from the same copy.
    data
        A dataset dealt out to nodes: `dataset.split(recipe)`.
    method, graph
        Objects or names: `gossamer.MomentumTracking(beta=0.9)` or "momentum-tracking", `gossamer.topology.ring(8)` or
        "ring". A method's class stands for the method with its defaults.
    lr
        The step size: a number, a function of the round, or a schedule (`gossamer.engine.StepDecay`, `Cosine`,
        `WarmUp`).
    epochs, rounds
        How long: one of the two. An epoch is one pass over a node's own data.
    weight_decay, clip
        L2 added to the gradient; largest length of a node's gradient before that.
    node_weight
        "equal": every node's loss counts the same. "size": in proportion to its number of samples.
    workers
        Threads that share the nodes; one per core by default. The result does not depend on it.
    evaluate_every
        Epochs between evaluations; by default there are at most ten. The start and the end are always evaluated.
    checkpoint, checkpoint_every
        A directory for checkpoints and the epochs between them (None: one a minute). A run that finds its own
        checkpoint there goes on from it, to the same bits as if it had never stopped. With a number as `lr`, a longer
        run goes on from a shorter one. A run that starts from other weights is another run: give a function as `model`,
        or make your module after `torch.manual_seed`. Of a model, parameters and buffers are kept, not what it counts
        or draws otherwise.
    callbacks
        Functions that are called with the figures of each evaluation.

    >>> from gossamer import MomentumTracking, data, models, topology
    >>> nodes = data.load("digits").split(data.partition.k_class(nodes=4, k=5, seed=0))
    >>> run = simulate(models.SmallCNN, nodes, MomentumTracking(), topology.ring(4), lr=0.05, batch_size=32, rounds=2)
    >>> run.history["round"]
    [0, 1, 2]
    """
    if not isinstance(data, NodeData):
        raise InputError(
            f"The data of a run are dealt out to nodes, but these are a {type(data).__name__}; "
            f"give dataset.split(gossamer.partition.iid(nodes=8))."
        )
    method, graph = methods.resolve(method), topology.resolve(graph, data.nodes)
    _refuse_impossible(weight_decay, clip)
    _refuse_strange(checkpoint, callbacks)
    lr = plain_step_size(lr)
    with Workers(workers) as pool:
        pace = pace_of(data, batch_size, lr, epochs=epochs, rounds=rounds, evaluate_every=evaluate_every)
        settings = Settings(
            step_size=pace.step_size,
            batch_size=batch_size,
            seed=seed,
            weight_decay=weight_decay,
            clip=clip,
            node_weight=node_weight,
            device=device_of(device),
        )
        simulation = Simulation(make_model(model, data, seed), data, method, graph, settings, pool)
        store = None
        if checkpoint is not None:
            between = None
            if checkpoint_every is not None:
                between = interval(checkpoint_every, pace.per_epoch, "checkpoint_every")
            store = _Store(Path(checkpoint), between, identity_of(simulation, lr, pace))
        history = _train(simulation, pace, store, callbacks, progress)
    return Run(history, Models(data.nodes, simulation.models.independent), simulation)


def _refuse_impossible(weight_decay: float, clip: float | None) -> None:
    possible_clip = clip is None or clip == math.inf or (is_finite_number(clip) and clip > 0)
    if not is_finite_number(weight_decay) or weight_decay < 0 or not possible_clip:
        raise InputError(
            f"weight_decay must be a finite number, 0 or above, and clip a number above 0; they are {weight_decay!r}, "
            f"{clip!r}."
        )


def _refuse_strange(checkpoint: object, callbacks: object) -> None:
    # Not any iterable: looking through a generator would use it up.
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise InputError(f"callbacks must be a list of functions of one row of figures, not {callbacks!r}.")
    if checkpoint is not None and not isinstance(checkpoint, str | Path):
        raise InputError(f"checkpoint must be the path of a directory, not {checkpoint!r}.")


class _Store:
    """Where and how often a run is saved, and what makes it this run."""

    def __init__(self, directory: Path, interval: int | None, identity: dict[str, Any]) -> None:
        self.directory, self.interval, self.identity = directory, interval, identity
        self._saved_at = time.monotonic()

    def is_due(self, round: int) -> bool:
        """Whether to save after `round` rounds."""
        if self.interval is None:
            return time.monotonic() - self._saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        return round % self.interval == 0

    def load(self, simulation: Simulation, total: int) -> History:
        found = checkpoints.load_newest(self.directory, self.identity)
        if found is None:
            return History()
        round, content = found
        if round > total:
            raise InputError(
                f"The checkpoint in {self.directory} was written after {round} rounds, but this run has {total}, and "
                f"rounds cannot be undone; ask for at least {round} rounds, or choose another directory."
            )
        simulation.load_state_dict(round, content["simulation"])
        return History(json.loads(content["history"]))

    def save(self, simulation: Simulation, history: History) -> None:
        content = {"simulation": simulation.state_dict(), "history": json.dumps(history.rows)}
        checkpoints.save(self.directory, simulation.round, self.identity, content)
        self._saved_at = time.monotonic()


def _train(
    simulation: Simulation,
    pace: Pace,
    store: _Store | None,
    callbacks: Sequence[Callable[[Row], None]],
    progress: bool | None,
) -> History:
    total = pace.total
    history = store.load(simulation, total) if store else History()

    def evaluate() -> None:
        row = simulation.measure(validate=simulation.round == total)
        history.put(row)
        for callback in callbacks:
            callback(row)

    title = simulation.method.facts.title
    with deferred_interrupts() as interrupt, progress_bar(title, progress) as advance, _told_of(history):
        if not history.rows:
            evaluate()
        elif simulation.round == total and not _is_final(history.last, simulation):
            # The checkpoint is from the midst of a longer run.
            evaluate()
            if store:
                store.save(simulation, history)
        while simulation.round < total:
            r = simulation.round + 1
            due = pace.is_evaluated(r)
            simulation.advance(measured=due)
            if due:
                evaluate()
            if store and (store.is_due(r) or r == total or interrupt.requested):
                store.save(simulation, history)
            advance(r / total, _progress(history.last))
            if interrupt.requested:
                raise KeyboardInterrupt
    return history


@contextmanager
def _told_of(history: History) -> Iterator[None]:
    """A divergence inside of the `with` knows what was measured before it."""
    try:
        yield
    except DivergenceError as error:
        error.history = history
        raise


def _is_final(row: Row, simulation: Simulation) -> bool:
    """Whether a row holds all that is measured at the end of a run, which is where the simulation stands."""
    has_validation_set = len(simulation.data.validation[1]) > 0
    return bool(row["round"] == simulation.round) and ("validation_accuracy" in row or not has_validation_set)


def _progress(row: Row) -> str:
    if row["accuracy"] is None:
        return "" if row["train_loss"] is None else f"training loss {row['train_loss']:.3f}"
    return f"accuracy {row['accuracy']:.3f}  loss {row['loss']:.3f}"
