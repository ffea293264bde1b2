"""A chain of layers, forwards and backwards."""

from typing import Any

import torch
from torch import Tensor

from gossamer.engine.chains.contract import Arrangement
from gossamer.engine.chains.recognition import Plan

Views = list[Any]
"""What every layer of a chain wants to know of the parameters, or of the gradients, of a group of nodes."""


class Chain:
    """Losses and gradients of G nodes at once, for a model that is a chain of known layers (see `read`).

    With the batch last a group has any number of nodes, with the channels last it is one node.

    The results equal those of the model itself up to rounding. They are the same bits whichever thread computes them,
    but the rounding may depend on the arrangement and on which nodes form a group: choose both by the model, the number
    of nodes and the batch size alone, never by the number of workers (see `group_size`).

    >>> from gossamer.engine.chains import BATCH_LAST, read
    >>> from gossamer.engine.node_models import Layout
    >>> from gossamer.models import LeNet
    >>> model = LeNet((1, 28, 28), 10)
    >>> layout = Layout(model)
    >>> chain = Chain(read(model, layout), BATCH_LAST)
    >>> parameters = chain.views(layout.flatten(model).expand(4, -1).contiguous())
    >>> losses, right = chain.scores(parameters, torch.zeros(4, 16, 1, 28, 28), torch.zeros(4, 16, dtype=torch.int64))
    >>> losses.shape
    torch.Size([4])
    """

    def __init__(self, plan: Plan, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.layers = plan.layers(arrangement)
        self._first_trained = next(i for i, layer in enumerate(self.layers) if layer.trains)

    def views(self, rows: Tensor) -> Views:
        """The parameters, or the gradients, `rows` [G, d] of G nodes as `gradients` and `scores` want them.

        They stay good while `rows` does: a training loop makes them once, which saves it a tenth of every round.
        """
        return [layer.views(rows) for layer in self.layers]

    @torch.no_grad()
    def gradients(
        self, parameters: Views, grads: Views, inputs: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Overwrite `grads` with the gradients of the mean cross-entropies at `parameters`.

        `weights` [G] scales each node's loss for the gradient. Returns the losses [G], not scaled.
        """
        x = self.arrangement.arranged(inputs)
        tape = []
        for layer, own in zip(self.layers, parameters, strict=True):
            x, kept = layer.forward(x, own)
            tape.append(kept)
        log_probability = torch.log_softmax(self.arrangement.outputs(x), 1)
        dy = self.arrangement.gradient(_loss_gradient(log_probability, targets, weights))
        for i in range(len(self.layers) - 1, self._first_trained - 1, -1):
            # What a layer has kept is freed as soon as it is used.
            dx = self.layers[i].backward(dy, tape.pop(), parameters[i], grads[i], i > self._first_trained)
            if dx is not None:
                dy = dx
        return _losses(log_probability, targets)

    @torch.no_grad()
    def scores(self, parameters: Views, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean cross-entropies [G] and the numbers of right predictions [G] at `parameters`, without gradients."""
        x = self.arrangement.arranged(inputs)
        for layer, own in zip(self.layers, parameters, strict=True):
            x, _ = layer.forward(x, own)
        outputs = self.arrangement.outputs(x)
        # Not of the logarithms: rounding makes different outputs equal there.
        right = (outputs.argmax(1) == targets).sum(1)
        return _losses(torch.log_softmax(outputs, 1), targets), right


def _loss_gradient(log_probability: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """weight / B (softmax - one-hot) [G, classes, B]."""
    dy = log_probability.exp()
    dy.scatter_add_(1, targets[:, None], torch.full_like(dy[:, :1], -1.0))
    dy.div_(targets.shape[1])
    return dy if weights is None else dy.mul_(weights.to(dy)[:, None, None])


def _losses(log_probability: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropies [G]."""
    return log_probability.gather(1, targets[:, None]).mean((1, 2)).neg_()
