"""Gradients of any module by torch's autograd, one node after the other."""

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from gossamer.data import NodeData, Pipeline
from gossamer.engine.hardware import NodeGenerators, Workers
from gossamer.engine.history import Scores
from gossamer.engine.node_models import NodeModels
from gossamer.tasks import Tally, Task, task_of

BATCH = 500
"""Samples per forward pass where no gradient, or only a whole node's, is wanted."""


class AutogradGradients:
    """Runs every node's own module. `generators` are needed if it draws random numbers in its forward pass."""

    form = "autograd"

    def __init__(
        self,
        models: NodeModels,
        data: NodeData,
        loss_weights: Tensor,
        generators: NodeGenerators | None = None,
        task: Task | None = None,
    ) -> None:
        self._models, self._pipeline, self._generators = models, data.pipeline, generators
        self._device = models.x.device
        self._inputs = data.dataset.train_inputs.to(self._device)
        self._targets = data.dataset.train_targets.to(self._device)
        self._loss_weights: list[float] = loss_weights.tolist()
        self._task = task or task_of()
        self._nodes: Sequence[int] = range(len(models.modules))

    def among(self, models: NodeModels, nodes: Sequence[int], loss_weights: Tensor) -> "AutogradGradients":
        """Other modules, of these nodes."""
        some = copy.copy(self)
        some._models, some._nodes, some._loss_weights = models, nodes, loss_weights.tolist()
        return some

    def compute(
        self,
        indices: Sequence[Tensor],
        draws: Sequence[Tensor | None],
        clip: float | None,
        weight_decay: float,
        workers: Workers,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each node's forward and backward pass."""
        found = torch.zeros(3, len(indices), dtype=torch.float64)

        def one(node: int) -> None:
            found[0, node] = self._gradient(node, indices[node], draws[node])
            grad = self._models.grad[node]
            with torch.no_grad():
                norm = torch.linalg.vector_norm(grad)
                found[1, node], found[2, node] = grad.sum(), norm
                if clip is not None and norm > clip:
                    grad.mul_(clip / float(norm))
                if weight_decay:
                    grad.add_(self._models.x[node], alpha=weight_decay)

        workers.run(one, len(indices))
        losses, sums, norms = found
        return losses, sums, norms

    def scores(self, samples: tuple[Tensor, Tensor], workers: Workers) -> Scores:
        """All samples, model by model, in evaluation mode."""
        models = [*self._models.modules, self._models.averaged()]
        return evaluate(models, [samples] * len(models), self._pipeline, workers, self._device, self._task)

    def _gradient(self, node: int, index: Tensor, draws: Tensor | None) -> float:
        index = index.to(self._device)
        inputs, targets = self._pipeline.batch(self._inputs, index, draws), self._targets[index]
        self._models.grad[node].zero_()
        with self._generators.turn(self._nodes[node]) if self._generators else nullcontext():
            loss = self._task.loss.function(self._models.modules[node](inputs), targets)
        weight = self._loss_weights[node]
        torch.autograd.backward(loss if weight == 1.0 else weight * loss)
        return float(loss.detach())


def evaluate(
    models: Sequence[nn.Module],
    samples: Sequence[tuple[Tensor, Tensor]],
    pipeline: Pipeline,
    workers: Workers,
    device: torch.device,
    task: Task,
) -> Scores:
    """Score every model on its own set of samples, model by model on the workers, in evaluation mode."""
    found = tallies(models, samples, pipeline, workers, device, task)
    return Scores([tally.metric for tally in found], [tally.loss for tally in found])


def tallies(
    models: Sequence[nn.Module],
    samples: Sequence[tuple[Tensor, Tensor]],
    pipeline: Pipeline,
    workers: Workers,
    device: torch.device,
    task: Task,
) -> list[Tally]:
    """The same, as sums that can be added to those of other samples."""
    found = [Tally(task) for _ in models]

    def one(k: int) -> None:
        model, (inputs, targets) = models[k], samples[k]
        was_training = model.training
        model.eval()
        with torch.inference_mode():
            for start in range(0, len(targets), BATCH):
                if workers.interrupted:
                    return
                index = torch.arange(start, min(start + BATCH, len(targets)))
                output = model(pipeline.batch(inputs, index).to(device))
                found[k].add(output, targets[start : start + BATCH].to(device))
        model.train(was_training)

    workers.run(one, len(models))
    return found
