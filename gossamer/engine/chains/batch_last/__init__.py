"""Layers of a group of nodes, for small batches.

The batch is the **last** axis: images are [G, H, C, W, B] and vectors [G, F, B] for G nodes with B samples each. A
row's pixels of all samples then lie side by side in memory, so that a convolution is a few products of plain matrices
and a pooling one call of torch, however small the batch.
"""

import torch
from torch import Tensor

from gossamer.engine.chains.batch_last.convolution import Convolution
from gossamer.engine.chains.batch_last.layers import Bias, Flatten, Linear
from gossamer.engine.chains.batch_last.normalization import GroupNorm
from gossamer.engine.chains.batch_last.pooling import GlobalMean, MaxPool, MeanPool
from gossamer.engine.chains.contract import Arrangement, Pass, ReLU

__all__ = ["BATCH_LAST"]


def _arranged(inputs: Tensor) -> Tensor:
    """[G, B, C, H, W] to [G, H, C, W, B], and [G, B, F] to [G, F, B]; a copy in any case."""
    moved = inputs.permute(0, 3, 2, 4, 1) if inputs.dim() == 5 else inputs.transpose(1, 2)
    return moved.clone(memory_format=torch.contiguous_format)


def _as_they_are(numbers: Tensor) -> Tensor:
    return numbers


BATCH_LAST = Arrangement(
    convolution=Convolution,
    linear=Linear,
    bias=Bias,
    max_pool=MaxPool,
    mean_pool=MeanPool,
    global_mean=GlobalMean,
    group_norm=GroupNorm,
    flatten=Flatten,
    relu=ReLU,
    arranged=_arranged,
    outputs=_as_they_are,
    gradient=_as_they_are,
    # Measured on LeNet.
    evaluation=Pass(models=2, samples=200),
)
"""For groups of nodes."""
