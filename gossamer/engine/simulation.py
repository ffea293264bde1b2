"""N models, N nodes' data, one method: the loop behind `gossamer.simulate`."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer._common.metrics import Row, Scores, row_of
from gossamer.data import NodeBatches, NodeData
from gossamer.engine.chains import (
    BATCH_LAST,
    CHANNELS_LAST,
    Chain,
    Views,
    cost_of,
    group_size,
    is_worthwhile,
    read,
)
from gossamer.engine.evaluation import consensus_distance, evaluate, evaluate_chain
from gossamer.engine.history import History
from gossamer.engine.meter import Meter
from gossamer.engine.node_models import NodeModels
from gossamer.engine.pooling import pool_before_relu
from gossamer.engine.randomness import NodeGenerators
from gossamer.engine.traffic import bytes_per_node
from gossamer.engine.trial import draws_in_forward, refuse_single_samples
from gossamer.engine.workers import Workers
from gossamer.errors import GossamerError, InputError
from gossamer.methods import Method
from gossamer.network import SimulatedNetwork
from gossamer.topology import Topology

log = logging.getLogger("gossamer")


class DivergenceError(GossamerError):
    """What a node computes is no longer a finite number. `history` holds what was measured until then.

    >>> str(DivergenceError(node=3, round=12, value=float("nan"), lr=0.5))
    'The run diverged: the loss of node 3 is nan in round 12; try a step size below 0.5, or clip the gradients.'
    """

    def __init__(self, node: int, round: int, value: float, lr: float, what: str = "loss") -> None:
        self.node, self.round = node, round
        self.history = History()
        super().__init__(
            f"The run diverged: the {what} of node {node} is {value} in round {round}; try a step size below {lr:g}, "
            f"or clip the gradients."
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers that decide a run, beside data, model, method and graph."""

    step_size: Callable[[int], float]
    batch_size: int
    seed: int = 0
    weight_decay: float = 0.0
    clip: float | None = None
    node_weight: str = "equal"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


class Simulation:
    """All nodes of a run. `advance()` makes one round, `measure()` gives the figures of the moment.

    Every node's gradient is computed by one worker on the node's own batch, into the node's row of the flat gradient
    buffer; then the method makes its step on the whole buffers.
    """

    def __init__(
        self, model: nn.Module, data: NodeData, method: Method, topology: Topology, settings: Settings, workers: Workers
    ) -> None:
        if topology.n != data.nodes:
            raise InputError(
                f"The data is split among {data.nodes} nodes but the graph '{topology.name}' has {topology.n}; "
                f"make them equal."
            )
        method.check(topology)
        self.data, self.method, self.topology, self.settings = data, method, topology, settings
        self.batches = NodeBatches(data.partition.indices, settings.batch_size, settings.seed)
        self.models = NodeModels(pool_before_relu(model.train()), data.nodes, settings.device)
        self.network = SimulatedNetwork(topology, self.models.x.dtype, settings.device)
        self.state = method.initial(self.models.x, self.network)
        self.round = 0
        self._workers = workers
        self._inputs = data.dataset.train_inputs.to(settings.device)
        self._targets = data.dataset.train_targets.to(settings.device)
        self._loss_weights = data.loss_weights(settings.node_weight)
        self._losses = torch.zeros(data.nodes, dtype=torch.float64)
        self._gradient_sums = torch.zeros(data.nodes, dtype=torch.float64)
        self._gradient_norms = torch.zeros(data.nodes, dtype=torch.float64)
        self._norms_are_known = False
        self._meter = Meter(data.nodes)
        self._generators = self._private_generators()
        self._alone, self._chain, size = self._chains_and_group_size()
        self._groups = [range(first, min(first + size, data.nodes)) for first in range(0, data.nodes, size)]
        self._views = [self._views_of(self._chain, own) for own in self._groups] if self._chain else []

    def advance(self, measured: bool = False) -> None:
        """One round. `measured` notes the gradients' length, for the `measure()` that follows."""
        began = time.perf_counter()
        x, grad = self.models.x, self.models.grad
        samples = self._gradients(measured)
        lr = self.settings.step_size(self.round)
        self._refuse_divergence(lr)
        with torch.no_grad():
            self.method.step(self.state, x, grad, lr, self.network, self.round)
        self.round += 1
        self._norms_are_known = measured or self.settings.clip is not None
        self._meter.add(self._losses, samples, time.perf_counter() - began)

    def measure(self, validate: bool = False) -> Row:
        """The figures of the moment: every node's model and the averaged one on the common test set.

        `validate` adds the validation set, on which step sizes are chosen.
        """
        dim, width = self.models.layout.dim, self.models.x.element_size()
        lr = self.settings.step_size(max(0, self.round - 1))
        test = self._score(self.data.test)
        self._refuse_diverged_models(test, lr)
        validation = self._score(self.data.validation) if validate else None
        row = row_of(
            round=self.round,
            rounds_per_epoch=self.batches.rounds_per_epoch,
            lr=lr,
            test=test,
            validation_accuracy=validation.accuracy[:-1] if validation else None,
            train_loss=self._meter.train_loss,
            consensus_distance=consensus_distance(self.models.x),
            tracking_error=self._tracking_error(),
            gradient_norm=float(self._gradient_norms.mean()) if self._norms_are_known else None,
            bytes_sent=bytes_per_node(self.method, self.topology, dim, width, self.round),
            samples_per_second=self._meter.samples_per_second,
            seconds=self._meter.seconds,
        )
        self._meter.forget_losses()
        return row

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the rounds to come."""
        return {
            "x": self.models.x,
            "method": self.state.tensors(),
            "batches": self.batches.state_dict(),
            "buffers": self.models.buffers(),
            "generators": torch.stack(self._generators.states) if self._generators else None,
            "meter": self._meter.state_dict(),
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
        if self._generators is not None:
            self._generators.states = [state.clone() for state in saved["generators"]]

    def _gradients(self, measured: bool) -> int:
        """Every node's loss and gradient on its next batch; returns the number of samples."""
        samples = [0] * len(self._groups)

        def one(k: int) -> None:
            own = self._groups[k]
            indices = [self.batches.next(node) for node in own]
            sizes = [index.numel() for index in indices]
            samples[k] = sum(sizes)
            if self._chain is None or self._alone is None:
                for node, index in zip(own, indices, strict=True):
                    self._node_gradient(node, index)
            elif len(set(sizes)) == 1:
                self._chain_gradients(self._chain, self._views[k], own, indices)
            else:
                for node, index in zip(own, indices, strict=True):
                    alone = range(node, node + 1)
                    self._chain_gradients(self._alone, self._views_of(self._alone, alone), alone, [index])
            self._finish_gradients(own, measured)

        self._workers.run(one, len(self._groups))
        return sum(samples)

    def _refuse_divergence(self, lr: float) -> None:
        """Stop before a loss or a gradient that is no number reaches the other nodes."""
        for node in _not_finite(self._losses, self._gradient_sums):
            loss = float(self._losses[node])
            if not math.isfinite(loss):
                raise DivergenceError(node, self.round, loss, lr)
            # A sum may be too large where all of its terms are numbers.
            if not self.models.grad[node].isfinite().all():
                raise DivergenceError(node, self.round, float(self._gradient_sums[node]), lr, "gradient")

    def _refuse_diverged_models(self, test: Scores | None, lr: float) -> None:
        """Stop at models that are no numbers, or give none, as the last step may leave them."""
        sums = self.models.x.sum(1).cpu()
        losses = torch.tensor(test.loss[:-1]) if test else torch.zeros(len(sums))
        for node in _not_finite(losses, sums):
            if not self.models.x[node].isfinite().all():
                raise DivergenceError(node, max(0, self.round - 1), float(sums[node]), lr, "model")
            if not math.isfinite(losses[node]):
                raise DivergenceError(node, max(0, self.round - 1), float(losses[node]), lr, "test loss")

    @torch.no_grad()
    def _finish_gradients(self, own: range, measured: bool) -> None:
        """Clip the gradients of some nodes and add weight decay, while they are still in the worker's cache."""
        grads, clip = self.models.grad[own.start : own.stop], self.settings.clip
        self._gradient_sums[own.start : own.stop] = grads.sum(1).cpu()
        if clip is not None or measured:
            for node, row in zip(own, grads, strict=True):
                norm = float(torch.linalg.vector_norm(row))
                self._gradient_norms[node] = norm
                if clip is not None and norm > clip:
                    row.mul_(clip / norm)
        if self.settings.weight_decay:
            grads.add_(self.models.x[own.start : own.stop], alpha=self.settings.weight_decay)

    def _chain_gradients(self, chain: Chain, views: tuple[Views, Views], own: range, indices: list[Tensor]) -> None:
        """The gradients of a group at once, from batches of equal size."""
        pipeline = self.data.pipeline
        draws = [pipeline.draw(len(indices[0]), self.batches.generators[node]) for node in own]
        index = torch.cat(indices)
        stacked = None if draws[0] is None else torch.cat([d for d in draws if d is not None])
        inputs = pipeline.batch(self._inputs, index, stacked)
        rows = slice(own.start, own.stop)
        shape = (len(own), len(indices[0]))
        self._losses[rows] = chain.gradients(
            *views,
            inputs.view(*shape, *inputs.shape[1:]),
            self._targets[index].view(shape),
            self._loss_weights[rows],
        )

    def _node_gradient(self, node: int, index: Tensor) -> None:
        pipeline, device = self.data.pipeline, self.settings.device
        draws = pipeline.draw(len(index), self.batches.generators[node])
        index = index.to(device)
        inputs, targets = pipeline.batch(self._inputs, index, draws), self._targets[index]
        self.models.grad[node].zero_()
        with self._generators.turn(node) if self._generators else nullcontext():
            loss = functional.cross_entropy(self.models.modules[node](inputs), targets)
        weight = float(self._loss_weights[node])
        torch.autograd.backward(loss if weight == 1.0 else weight * loss)
        self._losses[node] = float(loss.detach())

    def _score(self, samples: tuple[Tensor, Tensor]) -> Scores | None:
        """Every node's model and, last, the averaged one; None without samples."""
        if self._chain is not None:
            # Not one after the other in a single tensor: a copy of all parameters shows with a thousand nodes.
            rows = [self.models.x, self.models.x.mean(0, keepdim=True)]
            return evaluate_chain(self._chain, rows, samples, self.data.pipeline, self._workers)
        models = [*self.models.modules, self.models.averaged()]
        return evaluate(models, samples, self.data.pipeline, self._workers, self.settings.device)

    def _tracking_error(self) -> float | None:
        """(1/N) sum_i |y_i - ybar|^2: how far the nodes' estimates of the common direction are apart."""
        y = self.method.tracked(self.state)
        return None if y is None else consensus_distance(y)

    def _chains_and_group_size(self) -> tuple[Chain | None, Chain | None, int]:
        """The model as chains of layers, for one node and for a group, and how many nodes form one; (None, None, 1).

        This is decided once: hooks that are put on the nodes' modules later see nothing of a chain.
        """
        plan = read(self.models.modules[0], self.models.layout) if self.settings.device.type == "cpu" else None
        sample = self._first_samples(1)[None]
        if plan is None or not plan.fits(sample, self._targets[None, :1]):
            return None, None, 1
        alone = Chain(plan, CHANNELS_LAST)
        nodes, batch = self.data.nodes, self.settings.batch_size
        if is_worthwhile(cost_of(plan, self.models.x[:1], sample), nodes, batch):
            return alone, Chain(plan, BATCH_LAST), group_size(nodes, batch)
        return alone, alone, 1

    def _views_of(self, chain: Chain, own: range) -> tuple[Views, Views]:
        """The parameters and the gradients of a group."""
        rows = slice(own.start, own.stop)
        return chain.views(self.models.x[rows]), chain.views(self.models.grad[rows])

    def _private_generators(self) -> NodeGenerators | None:
        """Generators for the nodes of a model that draws random numbers in its forward pass, else None."""
        model = self.models.modules[0]
        single = next((node for node in range(self.data.nodes) if self.batches.smallest(node) == 1), None)
        if single is not None:
            size = self.batches.sizes[single]
            refuse_single_samples(model, self._first_samples(1), size, self.settings.batch_size)
        if not draws_in_forward(model, self._first_samples(2), self.data.dataset.num_classes):
            return None
        if self._workers.number > 1:
            log.warning(
                "The model draws random numbers in its forward pass (Dropout?), so the nodes run on one worker."
            )
            self._workers.limit_to_one()
        return NodeGenerators(self.settings.seed, self.data.nodes, self.settings.device)

    def _first_samples(self, number: int) -> Tensor:
        """A batch to try things out with: the first sample, several times."""
        return self.data.pipeline.batch(
            self._inputs, torch.zeros(number, dtype=torch.int64, device=self.settings.device)
        )


def _not_finite(*numbers: Tensor) -> list[int]:
    """The nodes for which one of the tensors [N] holds no finite number."""
    fine = torch.stack([n.isfinite() for n in numbers]).all(0)
    return [] if fine.all() else (~fine).nonzero().flatten().tolist()
