"""Gradients of models that are chains of known layers: a group of nodes per operation, without autograd."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.data import NodeData
from gossamer.engine.gradients.batch_last import LAYERS, Convolution, batch_last
from gossamer.engine.gradients.recognition import ChainPlan
from gossamer.engine.hardware import Workers
from gossamer.engine.history import Scores
from gossamer.engine.node_models import NodeModels

Views = list[Any]
"""What every layer of a chain needs of the parameters, or of the gradients, of a group of nodes."""

# Measured on LeNet: fast sizes of a forward pass where no gradient is wanted.
MODELS_AT_ONCE, SAMPLES_AT_ONCE = 2, 200


class Chain:
    """Losses and gradients of G nodes at once, for a model that is a chain of known layers (see `read`).

    The results equal those of the model itself up to rounding. They are the same bits whichever thread computes them,
    but the rounding may depend on which nodes form a group.

    >>> from gossamer.engine.gradients.recognition import read
    >>> from gossamer.engine.node_models import Layout
    >>> from gossamer.models import LeNet
    >>> model = LeNet((1, 28, 28), 10)
    >>> layout = Layout(model)
    >>> chain = Chain(read(model, layout))
    >>> parameters = chain.views(layout.flatten(model).expand(4, -1).contiguous())
    >>> losses, right = chain.scores(parameters, torch.zeros(4, 16, 1, 28, 28), torch.zeros(4, 16, dtype=torch.int64))
    >>> losses.shape
    torch.Size([4])
    """

    def __init__(self, plan: ChainPlan) -> None:
        self.layers = [LAYERS[name](*given) for name, given in plan.steps]
        self._first_trained = next(i for i, layer in enumerate(self.layers) if layer.trains)

    def views(self, rows: Tensor) -> Views:
        """The parameters, or the gradients, `rows` [G, d] of G nodes as `gradients` and `scores` take them.

        They remain valid as long as `rows`: a training loop makes them once, which saves a tenth of every round.
        """
        return [layer.views(rows) for layer in self.layers]

    @torch.no_grad()
    def gradients(
        self, parameters: Views, grads: Views, inputs: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Overwrite `grads` with the gradients of the mean cross-entropies at `parameters`.

        `weights` [G] scales each node's loss for the gradient. Returns the losses [G], not scaled.
        """
        x = batch_last(inputs)
        tape = []
        for layer, own in zip(self.layers, parameters, strict=True):
            x, kept = layer.forward(x, own)
            tape.append(kept)
        log_probability = torch.log_softmax(x, 1)
        dy = _loss_gradient(log_probability, targets, weights)
        for i in range(len(self.layers) - 1, self._first_trained - 1, -1):
            # What a layer has kept is freed as soon as it is used.
            dx = self.layers[i].backward(dy, tape.pop(), parameters[i], grads[i], i > self._first_trained)
            if dx is not None:
                dy = dx
        return _losses(log_probability, targets)

    @torch.no_grad()
    def scores(self, parameters: Views, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean cross-entropies [G] and the numbers of right predictions [G] at `parameters`, without gradients."""
        x = batch_last(inputs)
        for layer, own in zip(self.layers, parameters, strict=True):
            x, _ = layer.forward(x, own)
        # The largest output, not the largest logarithm: rounding makes different outputs equal there.
        right = (x.argmax(1) == targets).sum(1)
        return _losses(torch.log_softmax(x, 1), targets), right


def _loss_gradient(log_probability: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """weight / B (softmax - one-hot) [G, classes, B]."""
    dy = log_probability.exp()
    dy.scatter_add_(1, targets[:, None], torch.full_like(dy[:, :1], -1.0))
    dy.div_(targets.shape[1])
    return dy if weights is None else dy.mul_(weights.to(dy)[:, None, None])


def _losses(log_probability: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropies [G]."""
    return log_probability.gather(1, targets[:, None]).mean((1, 2)).neg_()


class ChainGradients:
    """Computes nodes in groups, a chain for all of a group's batches at once."""

    form = "batch_last"

    def __init__(self, chain: Chain, models: NodeModels, data: NodeData, batch_size: int, loss_weights: Tensor) -> None:
        self._chain, self._models, self._pipeline, self._loss_weights = chain, models, data.pipeline, loss_weights
        self._inputs, self._targets = data.dataset.train_inputs, data.dataset.train_targets
        size = group_size(data.nodes, batch_size)
        self.groups = [range(first, min(first + size, data.nodes)) for first in range(0, data.nodes, size)]
        self._views = {nodes: self._views_of(nodes) for nodes in self.groups}

    def compute(self, nodes: range, indices: Sequence[Tensor], draws: Sequence[Tensor | None]) -> Tensor:
        """All nodes at once; one by one where their batches differ in size."""
        if len({len(index) for index in indices}) > 1:
            each = zip(nodes, indices, draws, strict=True)
            return torch.cat([self.compute(range(node, node + 1), [index], [draw]) for node, index, draw in each])
        index = torch.cat(list(indices))
        stacked = [d for d in draws if d is not None]
        inputs = self._pipeline.batch(self._inputs, index, torch.cat(stacked) if stacked else None)
        shape = (len(nodes), len(indices[0]))
        return self._chain.gradients(
            *(self._views.get(nodes) or self._views_of(nodes)),
            inputs.view(*shape, *inputs.shape[1:]),
            self._targets[index].view(shape),
            self._loss_weights[nodes.start : nodes.stop],
        )

    def scores(self, samples: tuple[Tensor, Tensor], workers: Workers) -> Scores | None:
        """The models in small groups and the samples in blocks, shared by the workers."""
        inputs, targets = samples
        if len(targets) == 0:
            return None
        x = self._models.x
        # Not stacked: a copy of all parameters costs time and memory with a thousand nodes.
        groups = [part for rows in (x, x.mean(0, keepdim=True)) for part in torch.split(rows, MODELS_AT_ONCE)]
        parameters = [self._chain.views(own) for own in groups]
        starts = range(0, len(targets), SAMPLES_AT_ONCE)
        right = torch.zeros(len(groups), MODELS_AT_ONCE, len(starts), dtype=torch.int64)
        loss = torch.zeros(len(groups), MODELS_AT_ONCE, len(starts), dtype=torch.float64)

        def one(k: int) -> None:
            group, block = divmod(k, len(starts))
            models = len(groups[group])
            truth = targets[starts[block] : starts[block] + SAMPLES_AT_ONCE]
            batch = self._pipeline.batch(inputs, torch.arange(starts[block], starts[block] + len(truth)))
            losses, hits = self._chain.scores(
                parameters[group], batch.expand(models, *batch.shape), truth.expand(models, -1)
            )
            right[group, :models, block] = hits
            loss[group, :models, block] = losses.double() * len(truth)

        workers.run(one, len(groups) * len(starts))
        places = [(group, place) for group, own in enumerate(groups) for place in range(len(own))]
        total = len(targets)
        return Scores(
            [float(right[place].sum()) / total for place in places],
            [float(loss[place].sum()) / total for place in places],
        )

    def _views_of(self, nodes: range) -> tuple[Views, Views]:
        """The parameters and the gradients of a group."""
        rows = slice(nodes.start, nodes.stop)
        return self._chain.views(self._models.x[rows]), self._chain.views(self._models.grad[rows])


# Measured on LeNet: below about 512 samples the overhead of each operation shows, far above nothing is gained, and the
# memory of a group grows with its samples.
SAMPLES = 512
LARGEST = 64
# So that there is work for several workers also when there are few nodes.
LEAST_GROUPS = 4
# Measured with AVX-512, convolutions of 6 to 64 channels, batches of 2 to 200, 8 and 128 nodes: with more
# multiplications in the convolutions of a node's batch than this, torch's own beat ours, which save overhead. Torch's
# compute their output channels in blocks, so where these are not full, ours are faster for that much longer.
FEW_MULTIPLICATIONS = 32_000_000
BLOCK = 16
# Measured with images of 28 to 224 pixels: with more numbers per sample than this, memory decides, and torch's own are
# up to twice as fast.
FEW_NUMBERS = 128_000


class Cost(NamedTuple):
    """What one sample takes: `multiplications` in convolutions, and the `numbers` that all layers make of it.

    `in_blocks` are the multiplications with the output channels of every convolution rounded up to full blocks.
    """

    multiplications: int
    in_blocks: int
    numbers: int


@torch.no_grad()
def cost_of(chain: Chain, row: Tensor, inputs: Tensor) -> Cost:
    """What one sample of `inputs` [G, B, ...] takes with the parameters `row` [1, d]."""
    x = batch_last(inputs[:1, :1])
    multiplications = in_blocks = numbers = 0
    for layer, own in zip(chain.layers, chain.views(row), strict=True):
        x, kept = layer.forward(x, own)
        numbers += x.numel()
        if isinstance(layer, Convolution):
            channels = layer.weight.shape[0]
            per_channel = layer.weight.size // channels * x.shape[1] * x.shape[3]
            multiplications += channels * per_channel
            in_blocks += math.ceil(channels / BLOCK) * BLOCK * per_channel
            unfolded, _ = kept
            numbers += unfolded.numel()
    return Cost(multiplications, in_blocks, numbers)


def group_size(nodes: int, batch: int) -> int:
    """The number of nodes per group that is fast for batches of this size, whatever the number of workers.

    >>> group_size(nodes=512, batch=16), group_size(nodes=8, batch=100)
    (32, 2)
    """
    return max(1, min(SAMPLES // batch, LARGEST, nodes // LEAST_GROUPS))


def is_worthwhile(cost: Cost, batch: int) -> bool:
    """Whether groups of several nodes beat one model after another.

    >>> is_worthwhile(Cost(multiplications=600_000, in_blocks=1_200_000, numbers=31_000), batch=100)
    True
    >>> is_worthwhile(Cost(multiplications=600_000, in_blocks=600_000, numbers=31_000), batch=100)
    False
    >>> is_worthwhile(Cost(multiplications=16_000_000, in_blocks=16_000_000, numbers=860_000), batch=1)
    False
    """
    # batch * multiplications <= FEW_MULTIPLICATIONS * (in_blocks / multiplications), also without any.
    is_light = batch * cost.multiplications**2 <= FEW_MULTIPLICATIONS * cost.in_blocks
    return is_light and cost.numbers <= FEW_NUMBERS
