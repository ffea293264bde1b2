"""`gossamer.simulate`: train one model across N nodes on this machine."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gossamer import methods, topology
from gossamer._common import plotting
from gossamer._common.checks import check_switch, is_finite_number, whole_number
from gossamer._common.formatting import Advance, Row, duration, html_table, progress_bar, size
from gossamer._common.signals import deferred_interrupts
from gossamer.data import NodeData
from gossamer.engine.checkpoints import CheckpointDirectory, identity_of
from gossamer.engine.churn import Churn, ChurnEvent, churn_of
from gossamer.engine.hardware import Workers, device_of
from gossamer.engine.history import History
from gossamer.engine.local_steps import Inner
from gossamer.engine.node_models import ModelFactory, Models, fitted, make_model
from gossamer.engine.schedule import Lr, Schedule, plain_step_size, rounds_in, schedule_of
from gossamer.engine.simulation import Settings, Simulation
from gossamer.errors import DivergenceError, InputError
from gossamer.methods.contract import MethodChoice
from gossamer.tasks import Function, Loss, Metric, task_of
from gossamer.topology import Topology


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: what was measured, and every node's model.

    The models are independent copies of yours, in evaluation mode, that can be saved or trained further. Buffers
    (BatchNorm's running statistics) are every node's own; the averaged model has their mean. Where nodes come and go,
    the models are those of `simulation.present`, the nodes that are there at the end.

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
        return f"Run({self.metric.name}={self.score:.4f}, nodes={len(self.models)}, history={self.history})"

    def _repr_html_(self) -> str:
        last, metric, simulation = self.history.last, self.metric.facts, self.simulation
        found = {
            f"test {metric.name}": metric.with_unit(last[metric.name]),
            "worst node": metric.with_unit(metric.worst(last)),
            "best node": metric.with_unit(metric.best(last)),
            "averaged model": metric.with_unit(last[f"averaged_{metric.name}"]),
            "rounds": f"{last['round']} ({last['epoch']:.4g} epochs)",
            "sent per node": size(last["bytes_sent"]),
            "time of the rounds": duration(last["seconds"]),
        }
        graph = f"{simulation.topology.name} of {len(self.models)} nodes"
        return html_table([], list(found.items()), f"{simulation.method.facts.title}, {graph}")

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the metric over epochs and return the matplotlib figure: mean, range over the nodes, averaged model.

        With a path it goes into that .png, .svg or .pdf file, and the path is returned.
        """
        title = self.simulation.method.facts.title
        return plotting.plot("run", self.history.rows, path, title=title, metric=self.metric.facts)

    @property
    def metric(self) -> Metric:
        """What was measured: its name, and whether higher is better."""
        return self.simulation.settings.task.metric

    @property
    def score(self) -> float:
        """The metric at the end: the mean over the nodes, each with its own model."""
        return float(self.history.last[self.metric.name])

    @property
    def accuracy(self) -> float:
        """The `score` of a run whose metric is the accuracy."""
        if self.metric.name != "accuracy":
            raise InputError(f"This run measured {self.metric.name}, not accuracy; take run.score.")
        return self.score

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
    loss: str | Loss | Function | None = None,
    metric: str | Metric | Function | None = None,
    evaluate: str | None = None,
    batch_size: int = 100,
    epochs: float | None = None,
    rounds: int | None = None,
    seed: int = 0,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    inner: str | Inner | None = None,
    every: int = 1,
    clip: float | None = None,
    node_weight: str = "equal",
    nonfinite: str = "stop",
    churn: Churn | Sequence[ChurnEvent] | str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    evaluate_every: float | None = None,
    evaluations: int | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: float | None = 1.0,
    callbacks: Sequence[Callable[[Row], None]] = (),
    progress: bool | None = None,
) -> Run:
    """Train one model across the nodes of `data` with `method` on `graph`, all on this machine.

    model
        A class such as `gossamer.models.LeNet` that is called with (shape, outputs), any function without arguments
        that makes an `nn.Module`, or a module. All nodes start from the same copy.
    data
        A dataset split among nodes: `dataset.split(recipe)`. Floating-point numbers of another type than the model's
        are converted.
    method, graph
        Objects or names: `gossamer.MomentumTracking(beta=0.9)` or "momentum-tracking", `gossamer.topology.ring(8)` or
        "ring". A method's class means the method with its defaults.
    lr
        The step size: a number, a function of the round, or a schedule (`gossamer.engine.StepDecay`, `Cosine`,
        `WarmUp`).
    epochs, rounds
        How long: one of the two. An epoch is one pass over a node's own data. Rounds are synchronous, so where nodes
        hold different numbers of samples n_i, an epoch is ceil(mean(n_i) / batch_size) rounds for all of them: a
        node with fewer samples than the mean sees its own more than once in an epoch, one with more only a part.
    loss, metric
        What is minimized and what is reported: names, or functions of (outputs, targets). Losses: "cross-entropy" (the
        default), "token-cross-entropy", "mse", "bce". Metrics: "accuracy", "perplexity", "mae", "f1", "loss"; by
        default the one that is usual for the loss. A loss function gives the mean over a batch; a metric function is
        called with all outputs and targets of a test set, and `gossamer.Metric` says whether less of it is better.
        Rows of figures are named after the metric: "mae", "mae_min", "mae_max", "node_mae", "averaged_mae".
    evaluate
        "common": every node's model on the common test set. "own": each on its own node's test part
        (`dataset.split(..., own_test=0.2)`, `gossamer.data.sites`), the averaged model on all parts. By default the
        common test set if there is one. Without any test samples the run is refused.
    weight_decay, decoupled, clip
        L2 regularization added to the gradient or, if decoupled, X <- (1 - lr * weight_decay) X before the step as in
        AdamW; the largest norm of a node's gradient before that.
    inner, every
        Several steps of a torch optimizer between two exchanges, as `gossamer.optim.Outer` makes them on real nodes:
        "sgd:momentum=0.9", "adamw", ... or a function that makes the optimizer of a list of tensors. A round is still
        one batch per node, and `lr` is the step size of the inner optimizer ("sgd" if only `every` is given); after
        `every` rounds the method sees x_start - x_end as its gradient, with step size 1.
    node_weight
        "equal": every node's loss counts the same. "size": in proportion to its number of samples.
    nonfinite
        What a NaN or Inf in a node's loss or gradient does: "stop" the run with a `DivergenceError`, or "skip", which
        counts that round of the node as gradient 0 (`run.simulation.skipped`).
    churn
        Nodes that leave and return: a list such as [(100, "leaves", 3), (250, "joins", 3)] of what happens before which
        round, or `gossamer.Churn(up=12, down=4)`: every node is there for 12 epochs on average, then away for 4. Rows
        of figures are those of the nodes that are there, and say who they are ("present", "changes").
    workers
        Threads that share the nodes; one per core by default. The result does not depend on their number.
    evaluate_every, evaluations
        Epochs between evaluations, or their number (give one of the two); each uses the whole test set. By default
        there are at most ten, and fewer if they would be more than a fifth of the run's forward passes; those before
        the last use a random part of the test set if need be, and each row has its `test_samples`. The start and the
        end are always evaluated, and the start is not counted.
    checkpoint, checkpoint_every
        A directory for the checkpoints of this run and the epochs between them (None: one a minute). A run that finds
        its own checkpoint there continues from it, to the same bits as if it had never stopped; a checkpoint of another
        run is refused. With a number as `lr`, a longer run continues a shorter one. A run that starts from other
        weights is another run: give a function as `model`, or make your module after `torch.manual_seed`. Parameters
        and buffers of a model are saved, its other state is not.
    callbacks
        Functions that are called with the row of figures of each evaluation.

    >>> from gossamer import MomentumTracking, data, models, topology
    >>> nodes = data.load("digits").split(data.partition.k_class(nodes=4, k=5, seed=0))
    >>> run = simulate(models.SmallCNN, nodes, MomentumTracking(), topology.ring(4), lr=0.05, batch_size=32, rounds=2)
    >>> run.history["round"]
    [0, 2]
    """
    if not isinstance(data, NodeData):
        raise InputError(
            f"The data of a run are split among nodes, but these are a {type(data).__name__}; "
            f"give dataset.split(gossamer.partition.iid(nodes=8))."
        )
    method, graph = methods.resolve(method), topology.resolve(graph, data.nodes)
    _check(weight_decay, clip, checkpoint, callbacks)
    check_switch("A run", "decoupled", decoupled)
    if whole_number(every, "every, the number of steps between two exchanges,", least=None) < 1:
        raise InputError(f"An exchange follows at least 1 step, but every is {every}.")
    if inner and decoupled:
        raise InputError("The inner optimizer makes the steps, so a decoupled weight decay is its to have; use adamw.")
    if nonfinite not in ("stop", "skip"):
        raise InputError(f"nonfinite is 'stop' or 'skip' (a gradient of zero for that round), not {nonfinite!r}.")
    task, evaluate = task_of(loss, metric), data.evaluation(evaluate)
    lr = plain_step_size(lr)
    silent: Advance = lambda fraction, text="": None  # noqa: E731
    bar = nullcontext(silent) if progress is False else progress_bar(method.facts.title, progress)
    with Workers(workers) as pool, bar as advance:
        schedule = schedule_of(
            data,
            batch_size,
            lr,
            epochs=epochs,
            rounds=rounds,
            evaluate_every=evaluate_every,
            evaluations=evaluations,
            evaluate=evaluate,
        )
        settings = Settings(
            step_size=schedule.step_size,
            batch_size=batch_size,
            seed=seed,
            weight_decay=weight_decay,
            decoupled=decoupled,
            inner=inner or ("sgd" if every > 1 else None),
            every=every,
            clip=clip,
            node_weight=node_weight,
            nonfinite=nonfinite,
            churn=None if churn is None else churn_of(churn),
            device=device_of(device),
            task=task,
            evaluate=evaluate,
        )
        own = make_model(model, data, seed, task)
        data = fitted(data, own, batch_size)
        notify: Callable[[str], None] = lambda text: advance(0.0, text)  # noqa: E731
        if settings.churn is None:
            simulation = Simulation(own, data, method, graph, settings, pool, notify)
        else:
            from gossamer.engine.members import ChangingSimulation

            simulation = ChangingSimulation(own, data, method, graph, settings, pool, notify, rounds=schedule.rounds)
        store = None
        if checkpoint is not None:
            between = None
            if checkpoint_every is not None:
                between = rounds_in(checkpoint_every, schedule.rounds_per_epoch, "checkpoint_every")
            store = CheckpointDirectory(Path(checkpoint), between, identity_of(simulation, lr, schedule))
        history = _train(simulation, schedule, store, callbacks, advance)
    return Run(history, Models(len(simulation.present), simulation.models.independent), simulation)


def _check(weight_decay: float, clip: float | None, checkpoint: object, callbacks: object) -> None:
    if not is_finite_number(weight_decay) or weight_decay < 0:
        raise InputError(f"weight_decay must be a finite number, 0 or above, not {weight_decay!r}.")
    if clip is not None and clip != math.inf and not (is_finite_number(clip) and clip > 0):
        raise InputError(f"clip must be a number above 0, or None for no clipping, not {clip!r}.")
    # Not any iterable: checking a generator would use it up.
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise InputError(f"callbacks must be a list of functions of one row of figures, not {callbacks!r}.")
    if checkpoint is not None and not isinstance(checkpoint, str | Path):
        raise InputError(f"checkpoint must be the path of a directory, not {checkpoint!r}.")


def _train(
    simulation: Simulation,
    schedule: Schedule,
    store: CheckpointDirectory | None,
    callbacks: Sequence[Callable[[Row], None]],
    advance: Advance,
) -> History:
    total, data = schedule.rounds, simulation.data
    part = data.test_part(schedule.test_samples, simulation.settings.seed)
    history = store.load(simulation, total) if store else History()

    def evaluate() -> None:
        last = simulation.round == total
        row = simulation.measure(data.test if last else part, validate=last)
        history.put(row)
        for callback in callbacks:
            callback(row)

    with deferred_interrupts() as interrupt, _kept_in_errors(history):
        if not history.rows:
            evaluate()
        elif simulation.round == total and not _is_final(history.last, simulation):
            # The checkpoint was written in the middle of a longer run.
            evaluate()
            if store:
                store.save(simulation, history)
        while simulation.round < total:
            r = simulation.round + 1
            simulation.advance()
            if schedule.is_evaluated(r):
                evaluate()
            if store and (store.is_due(r) or r == total or interrupt.requested):
                store.save(simulation, history)
            advance(r / total, _progress(history.last, simulation.settings.task.metric.name))
            if interrupt.requested:
                raise KeyboardInterrupt
    return history


@contextmanager
def _kept_in_errors(history: History) -> Iterator[None]:
    """Give a divergence inside the `with` what was measured before it."""
    try:
        yield
    except DivergenceError as error:
        error.history = history
        raise


def _is_final(row: Row, simulation: Simulation) -> bool:
    """Whether a row is of the present round and holds all that is measured at the end of a run."""
    settings, has_validation_set = simulation.settings, len(simulation.data.validation[1]) > 0
    tests = len(simulation.test_sets()[-1][1])
    validated = f"validation_{settings.task.metric.name}" in row
    # Checkpoints of older versions do not say how many test samples there were: all.
    complete = row.get("test_samples", tests) == tests and (validated or not has_validation_set)
    return bool(row["round"] == simulation.round and complete)


def _progress(row: Row, metric: str) -> str:
    return f"{metric} {row[metric]:.3f}" + ("" if metric == "loss" else f"  loss {row['loss']:.3f}")
