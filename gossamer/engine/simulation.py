"""N models, N nodes' data, one method: the loop behind `gossamer.simulate`."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gossamer._common.formatting import Row
from gossamer.data import NodeBatches, NodeData
from gossamer.engine.churn import Churn
from gossamer.engine.gradients import gradients_of
from gossamer.engine.gradients.autograd import evaluate
from gossamer.engine.hardware import NodeGenerators, Workers
from gossamer.engine.history import Meter, Scores, bytes_per_node, consensus_distance, row_of
from gossamer.engine.local_steps import Inner, LocalSteps
from gossamer.engine.node_models import NodeModels, check_task, refuse_single_samples
from gossamer.errors import DivergenceError, InputError
from gossamer.methods import Method
from gossamer.network import SimulatedNetwork
from gossamer.tasks import Task, task_of
from gossamer.topology import Topology

log = logging.getLogger("gossamer")

# Measured on Momentum Tracking: with fewer numbers in all models a method's step is not faster on several threads.
LARGE = 2**20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers that decide a run, beside data, model, method and graph."""

    step_size: Callable[[int], float]
    batch_size: int
    seed: int = 0
    weight_decay: float = 0.0
    decoupled: bool = False
    clip: float | None = None
    node_weight: str = "equal"
    nonfinite: str = "stop"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    task: Task = field(default_factory=task_of)
    inner: str | Inner | None = None
    """The optimizer of the steps between two exchanges; None: the method makes all steps."""
    every: int = 1
    """How many steps there are between two exchanges."""
    evaluate: str = "common"
    """What the models are tested on: the "common" test set, or every node's "own" part."""

    churn: Churn | None = None
    """Which nodes leave and return; None: all are there all the time."""

    @property
    def added_decay(self) -> float:
        """The weight decay that is added to the gradient."""
        return 0.0 if self.decoupled else self.weight_decay


class Simulation:
    """All nodes of a run. `advance()` makes one round, `measure()` evaluates the models.

    The workers share the nodes: every node's gradient on its own batch goes into its row of the flat gradient buffer.
    Then the method makes its step on the whole buffers.
    """

    def __init__(
        self,
        model: nn.Module,
        data: NodeData,
        method: Method,
        topology: Topology,
        settings: Settings,
        workers: Workers,
        notify: Callable[[str], None] = log.info,
    ) -> None:
        if topology.n != data.nodes:
            raise InputError(
                f"The data is split among {data.nodes} nodes but the graph '{topology.name}' has {topology.n}; "
                f"make them equal."
            )
        method.check(topology)
        self.data, self.method, self.topology, self.settings = data, method, topology, settings
        self.batches = NodeBatches(data.partition.indices, settings.batch_size, settings.seed)
        self.models = NodeModels(model.train(), data.nodes, settings.device)
        self.network = SimulatedNetwork(topology, self.models.x.dtype, settings.device)
        self.state = method.initial(self.models.x, self.network)
        self.round = 0
        self.present: Sequence[int] = range(data.nodes)
        """The nodes that are there: row k of the models belongs to node present[k]."""
        self.skipped = [0] * data.nodes
        """How many rounds of every node have counted as gradient 0."""
        self._workers = workers
        self._losses = torch.zeros(data.nodes, dtype=torch.float64)
        self._gradient_sums = torch.zeros(data.nodes, dtype=torch.float64)
        self._gradient_norms = torch.zeros(data.nodes, dtype=torch.float64)
        self._norms_are_known = False
        self._meter = Meter(data.nodes)
        self._generators = self._private_generators()
        self._local = LocalSteps(self.models, settings.inner, settings.every) if settings.inner else None
        weights = data.loss_weights(settings.node_weight)
        self.gradients = gradients_of(self.models, data, weights, self._generators, notify, settings.task)

    def advance(self) -> None:
        """One round."""
        began = time.perf_counter()
        x, grad = self.models.x, self.models.grad
        samples = self._compute_gradients()
        lr = self.settings.step_size(self.round)
        self._refuse_divergence(lr)
        with torch.no_grad(), self._workers.torch_threads() if x.numel() > LARGE else nullcontext():
            if self.settings.decoupled:
                self.state.shrink(x, 1 - lr * self.settings.weight_decay)
            if self._local is None:
                self.method.step(self.state, x, grad, lr, self.network, self.round)
            else:
                self._step_locally(self._local, lr)
        self.round += 1
        self._norms_are_known = True
        self._meter.add(self._losses, samples, time.perf_counter() - began)

    def _step_locally(self, local: LocalSteps, lr: float) -> None:
        """A step of every node's own optimizer; after the last one before an exchange, a round of the method."""
        local.step(lr)
        exchanges, left = divmod(self.round + 1, local.every)
        if left == 0:
            local.turn_back()
            self.method.step(self.state, self.models.x, self.models.grad, 1.0, self.network, exchanges - 1)
            local.begin()

    def measure(self, samples: tuple[Tensor, Tensor] | None = None, validate: bool = False) -> Row:
        """Evaluate every node's model and the averaged one on test samples, by default the whole common test set.

        With `evaluate="own"` every node's model is tested on its node's own samples, and the averaged one on all of
        these. `validate` adds the validation set, on which step sizes are chosen.
        """
        lr = self.settings.step_size(max(0, self.round - 1))
        sets = self.test_sets(samples)
        test = self._scores(sets)
        self._refuse_diverged_models(test, lr)
        validate = validate and len(self.data.validation[1]) > 0
        row = row_of(
            metric=self.settings.task.metric.name,
            round=self.round,
            rounds_per_epoch=self.batches.rounds_per_epoch,
            lr=lr,
            test=test,
            test_samples=len(sets[-1][1]),
            validation=self._scores([self.data.validation] * len(sets)).metric[:-1] if validate else None,
            train_loss=self._meter.train_loss,
            consensus_distance=consensus_distance(self.models.x),
            tracking_error=self._tracking_error(),
            gradient_norm=float(self._gradient_norms.mean()) if self._norms_are_known else None,
            bytes_sent=self._bytes_sent(),
            samples_per_second=self._meter.samples_per_second,
            seconds=self._meter.seconds,
        )
        self._meter.forget_losses()
        return row

    def test_sets(self, samples: tuple[Tensor, Tensor] | None = None) -> list[tuple[Tensor, Tensor]]:
        """What every node's model and, last, the averaged one is tested on, see `measure`."""
        if self.settings.evaluate != "own":
            return [samples or self.data.test] * (len(self.present) + 1)
        return [*(self.data.own_tests[node] for node in self.present), self.data.own_tests_of(self.present)]

    def _bytes_sent(self) -> float:
        """What a node has sent, the mean over the nodes."""
        dim, width = self.models.layout.dim, self.models.x.element_size()
        return bytes_per_node(self.method, self.topology, dim, width, self.round // self.settings.every)

    def _scores(self, sets: list[tuple[Tensor, Tensor]]) -> Scores:
        """Score every node's model and, last, the averaged one, each on its samples."""
        if self.settings.task.is_classification and sets[0] is sets[-1]:
            return self.gradients.scores(sets[0], self._workers)
        models = [*self.models.modules, self.models.averaged()]
        pipeline, device = self.data.pipeline, self.settings.device
        return evaluate(models, sets, pipeline, self._workers, device, self.settings.task)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the rounds to come."""
        return {
            "x": self.models.x,
            "method": self.state.tensors(),
            "batches": self.batches.state_dict(),
            "buffers": self.models.buffers(),
            "generators": torch.stack(self._generators.states) if self._generators else None,
            "meter": self._meter.state_dict(),
            "skipped": self.skipped,
            **({"local": self._local.state_dict()} if self._local else {}),
        }

    def load_state_dict(self, round: int, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave after `round` rounds."""
        self.round = round
        self._norms_are_known = False
        with torch.no_grad():
            self.models.x.copy_(saved["x"])
            self.models.load_buffers(saved["buffers"])
            self.state.load(saved["method"])
        self.batches.load_state_dict(saved["batches"])
        self._meter.load_state_dict(saved["meter"])
        counts = saved.get("skipped", [0] * self.data.nodes)  # older versions did not keep them
        self.skipped = [int(count) for _, count in zip(self.skipped, counts, strict=True)]
        if self._local is not None:
            self._local.load_state_dict(saved["local"])
        if self._generators is not None:
            self._generators.states = [state.clone() for state in saved["generators"]]

    def _compute_gradients(self) -> int:
        """Every node's loss and gradient on its next batch; returns the number of samples."""
        batches, draw = self.batches, self.data.pipeline.draw
        indices = [batches.next(node) for node in self.present]
        sizes = [index.numel() for index in indices]  # len() of a tensor takes microseconds
        draws = [draw(size, batches.generators[node]) for size, node in zip(sizes, self.present, strict=True)]
        self._losses, self._gradient_sums, self._gradient_norms = self.gradients.compute(
            indices, draws, self.settings.clip, self.settings.added_decay, self._workers
        )
        return sum(sizes)

    def _refuse_divergence(self, lr: float) -> None:
        """Stop, or count the gradient as 0, before a loss or a gradient that is not finite reaches the other nodes."""
        if self.settings.nonfinite == "skip":
            self._skip()
            return
        for row in _not_finite(self._losses, self._gradient_sums):
            loss = float(self._losses[row])
            if not math.isfinite(loss):
                raise DivergenceError(self.present[row], self.round, loss, lr)
            # A sum may overflow though all of its terms are finite.
            if not self.models.grad[row].isfinite().all():
                raise DivergenceError(self.present[row], self.round, float(self._gradient_sums[row]), lr, "gradient")

    def _skip(self) -> None:
        for row in _not_finite(self._losses, self._gradient_sums):
            if math.isfinite(self._losses[row]) and self.models.grad[row].isfinite().all():
                continue
            node = self.present[row]
            self.skipped[node] += 1
            self._losses[row] = self._gradient_norms[row] = 0.0
            torch.mul(self.models.x[row].detach(), self.settings.added_decay, out=self.models.grad[row])
            log.warning("Round %d of node %d counts as gradient 0: it was not finite.", self.round, node)

    def _refuse_diverged_models(self, test: Scores, lr: float) -> None:
        """Stop if the last step has left models, test losses or metrics that are not finite."""
        sums = self.models.x.sum(1).cpu()
        losses = torch.tensor(test.loss[:-1])
        for row in _not_finite(losses, sums):
            node = self.present[row]
            if not self.models.x[row].isfinite().all():
                raise DivergenceError(node, max(0, self.round - 1), float(sums[row]), lr, "model")
            if not math.isfinite(losses[row]):
                raise DivergenceError(node, max(0, self.round - 1), float(losses[row]), lr, "test loss")
        refuse_metric(test.metric, self.settings.task.metric.name, max(0, self.round - 1), lr, self.present)

    def _tracking_error(self) -> float | None:
        """(1/N) sum_i |y_i - ybar|^2: how far the nodes' estimates of the common direction are apart."""
        y = self.method.tracked(self.state)
        return None if y is None else consensus_distance(y)

    def _private_generators(self) -> NodeGenerators | None:
        """Generators for the nodes of a model that draws random numbers in its forward pass, else None."""
        model = self.models.modules[0]
        single = next((node for node in range(self.data.nodes) if self.batches.smallest(node) == 1), None)
        if single is not None:
            size = self.batches.sizes[single]
            refuse_single_samples(model, self._first_samples(1), size, self.settings.batch_size)
        draws, _ = check_task(model, self.data, self.settings.task, self.settings.device)
        if not draws:
            return None
        if self._workers.number > 1:
            log.warning(
                "The model draws random numbers in its forward pass (Dropout?), so the nodes run on one worker."
            )
            self._workers.limit_to_one()
        return NodeGenerators(self.settings.seed, self.data.nodes, self.settings.device)

    def _first_samples(self, number: int) -> Tensor:
        """A batch for a trial: the first sample, several times."""
        index = torch.zeros(number, dtype=torch.int64)
        return self.data.pipeline.batch(self.data.dataset.train_inputs, index).to(self.settings.device)


def refuse_metric(values: list[float], name: str, round: int, lr: float, nodes: Sequence[int] | None = None) -> None:
    """Stop if a metric is not a finite number though models and losses are; the last value is the averaged model's.

    `nodes` are those that the values belong to; by default all.
    """
    for node, value in zip(nodes or range(len(values) - 1), values, strict=False):
        if math.isinf(value):
            raise DivergenceError(node, round, value, lr, name)
        if math.isnan(value):
            raise InputError(
                f"The metric '{name}' of node {node} is not a number (nan) in round {round}, though its loss is "
                f"finite; let the metric give a number for every test set, or name another one."
            )


def _not_finite(*numbers: Tensor) -> list[int]:
    """The rows in which one of the tensors [N] is not finite."""
    if all(math.isfinite(n.sum()) for n in numbers):
        return []
    fine = torch.stack([n.isfinite() for n in numbers]).all(0)
    return [] if fine.all() else (~fine).nonzero().flatten().tolist()
