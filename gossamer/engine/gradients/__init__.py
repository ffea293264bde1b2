"""Losses and gradients of the nodes' models, and their scores, behind one small interface.

The simulation asks one `Gradients` object and knows nothing of how it computes. There are two:

- `autograd`: any module, one node after the other;
- `chain`: models that are chains of known layers (`recognition`), several nodes per operation, without autograd. With
  small models and small batches most of the time is the overhead of a hundred small operations per node, which a group
  of nodes shares; the layout that suits small batches is in `batch_last`.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from gossamer.data import NodeData
from gossamer.engine.gradients.autograd import AutogradGradients
from gossamer.engine.gradients.chain import Chain, ChainGradients, cost_of, group_size, is_worthwhile
from gossamer.engine.gradients.recognition import read
from gossamer.engine.hardware import NodeGenerators, Workers
from gossamer.engine.history import Scores
from gossamer.engine.node_models import NodeModels

__all__ = ["Gradients", "gradients_of"]


class Gradients(Protocol):
    """Computes the losses and gradients of nodes, and scores their models.

    Everything that this needs beside the nodes' parameters is its own: buffers, layouts, modules, the training data on
    the right device. The same arguments give the same bits on every thread.
    """

    form: str
    """Names the computation. Two forms may round differently, so a change of bits needs another name."""

    groups: list[range]
    """The nodes that are computed together, in ascending order.

    Rounding may depend on them, so they follow from the model, the number of nodes and the batch size alone, never from
    the number of workers.
    """

    def compute(self, nodes: range, indices: Sequence[Tensor], draws: Sequence[Tensor | None]) -> Tensor:
        """Overwrite the gradients of one group and return its losses [G], which the loss weights do not scale.

        Node `nodes[k]` trains on the samples `indices[k]`, augmented by the random numbers `draws[k]` that
        `Pipeline.draw` gave for them. Groups may be computed at the same time on different threads.
        """
        ...

    def scores(self, samples: tuple[Tensor, Tensor], workers: Workers) -> Scores | None:
        """Score every node's model and, last, the averaged one; None without samples."""
        ...


def gradients_of(
    models: NodeModels, data: NodeData, batch_size: int, loss_weights: Tensor, generators: NodeGenerators | None
) -> Gradients:
    """The fastest form that can compute these models.

    `generators` are those of a model that draws random numbers in its forward pass. The choice is made once: hooks that
    are put on the nodes' modules later are not seen by a chain.
    """
    in_groups = models.x.device.type == "cpu" and group_size(data.nodes, batch_size) > 1
    if in_groups and (plan := read(models.modules[0], models.layout)):
        sample = data.pipeline.batch(data.dataset.train_inputs, torch.zeros(1, dtype=torch.int64))[None]
        if plan.fits(sample, data.dataset.train_targets[None, :1]):
            chain = Chain(plan)
            if is_worthwhile(cost_of(chain, models.x[:1], sample), batch_size):
                return ChainGradients(chain, models, data, batch_size, loss_weights)
    return AutogradGradients(models, data, loss_weights, generators)
