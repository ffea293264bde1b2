"""How differently the nodes' data pull at a model."""

import torch
from torch import nn
from torch.nn import functional

from gossamer.data import NodeData
from gossamer.engine.gradients.autograd import BATCH
from gossamer.engine.hardware import Workers
from gossamer.engine.node_models import ModelFactory, NodeModels, make_model


def gradient_dissimilarity(
    model: ModelFactory | nn.Module, data: NodeData, seed: int = 0, workers: int | None = None
) -> float:
    """zeta^2 of Assumption 5 at a model: (1/N) sum_i |grad f_i - grad f|^2 with each node's full gradient.

    Samples are not augmented. `model` is what `simulate` takes: a factory, initialized by `seed`, or a module (which is
    left as it was).

    >>> from gossamer import data, models
    >>> digits = data.load("digits")
    >>> alike, apart = (digits.split(data.partition.k_class(4, k, seed=0)) for k in (10, 3))
    >>> gradient_dissimilarity(models.SmallCNN, alike) < gradient_dissimilarity(models.SmallCNN, apart)
    True
    """
    nodes = NodeModels(make_model(model, data, seed), data.nodes, torch.device("cpu"))
    inputs, targets = data.dataset.train_inputs, data.dataset.train_targets

    def one(node: int) -> None:
        own = data.partition.indices[node]
        module = nodes.modules[node].eval()
        for index in torch.split(own, BATCH):
            output = module(data.pipeline.batch(inputs, index))
            loss = functional.cross_entropy(output, targets[index], reduction="sum") / len(own)
            torch.autograd.backward(loss)

    with Workers(workers) as pool:
        pool.run(one, data.nodes)
    return float((nodes.grad - nodes.grad.mean(0)).double().square().sum(1).mean())
