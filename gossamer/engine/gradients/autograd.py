"""Gradients of any module by torch's autograd, one node after the other."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data import NodeData, Pipeline
from gossamer.engine.hardware import NodeGenerators, Workers
from gossamer.engine.history import Scores
from gossamer.engine.node_models import NodeModels

BATCH = 500
"""Samples per forward pass where no gradient, or only a whole node's, is wanted."""


class AutogradGradients:
    """Runs every node's own module. `generators` are needed if it draws random numbers in its forward pass."""

    form = "autograd"

    def __init__(
        self, models: NodeModels, data: NodeData, loss_weights: Tensor, generators: NodeGenerators | None = None
    ) -> None:
        self.groups = [range(node, node + 1) for node in range(data.nodes)]
        self._models, self._pipeline, self._generators = models, data.pipeline, generators
        self._device = models.x.device
        self._inputs = data.dataset.train_inputs.to(self._device)
        self._targets = data.dataset.train_targets.to(self._device)
        self._loss_weights: list[float] = loss_weights.tolist()

    def compute(
        self,
        nodes: range,
        indices: Sequence[Tensor],
        draws: Sequence[Tensor | None],
        clip: float | None,
        weight_decay: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each node's forward and backward pass."""
        losses = torch.tensor(list(map(self._gradient, nodes, indices, draws)), dtype=torch.float64)
        own = slice(nodes.start, nodes.stop)
        grads = self._models.grad[own]
        with torch.no_grad():
            sums, norms = grads.sum(1), torch.stack([torch.linalg.vector_norm(row) for row in grads])
            if clip is not None:
                for row, norm in zip(grads, norms.tolist(), strict=True):
                    if norm > clip:
                        row.mul_(clip / norm)
            if weight_decay:
                grads.add_(self._models.x[own], alpha=weight_decay)
        return losses, sums, norms

    def scores(self, samples: tuple[Tensor, Tensor], workers: Workers) -> Scores | None:
        """All samples, model by model, in evaluation mode."""
        models = [*self._models.modules, self._models.averaged()]
        return evaluate(models, samples, self._pipeline, workers, self._device)

    def _gradient(self, node: int, index: Tensor, draws: Tensor | None) -> float:
        index = index.to(self._device)
        inputs, targets = self._pipeline.batch(self._inputs, index, draws), self._targets[index]
        self._models.grad[node].zero_()
        with self._generators.turn(node) if self._generators else nullcontext():
            loss = functional.cross_entropy(self._models.modules[node](inputs), targets)
        weight = self._loss_weights[node]
        torch.autograd.backward(loss if weight == 1.0 else weight * loss)
        return float(loss.detach())


def evaluate(
    models: Sequence[nn.Module],
    samples: tuple[Tensor, Tensor],
    pipeline: Pipeline,
    workers: Workers,
    device: torch.device,
) -> Scores | None:
    """Score every model on all samples, model by model on the workers, in evaluation mode; None without samples."""
    inputs, targets = samples
    if len(targets) == 0:
        return None
    right = torch.zeros(len(models), dtype=torch.int64)
    loss = torch.zeros(len(models), dtype=torch.float64)

    def one(k: int) -> None:
        model = models[k]
        was_training = model.training
        model.eval()
        with torch.inference_mode():
            for start in range(0, len(targets), BATCH):
                if workers.interrupted:
                    return
                index = torch.arange(start, min(start + BATCH, len(targets)))
                output = model(pipeline.batch(inputs, index).to(device))
                truth = targets[start : start + BATCH].to(device)
                right[k] += int((output.argmax(1) == truth).sum())
                loss[k] += float(functional.cross_entropy(output, truth, reduction="sum"))
        model.train(was_training)

    workers.run(one, len(models))
    return Scores((right.double() / len(targets)).tolist(), (loss / len(targets)).tolist())
