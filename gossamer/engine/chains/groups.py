"""When nodes are computed in groups, and how many form one.

The decision rests on the model, its inputs, the number of nodes and the batch size alone: never on a clock or on the
number of workers, because the rounding may depend on it.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.engine.chains.batch_last import BATCH_LAST
from gossamer.engine.chains.batch_last.convolution import Convolution
from gossamer.engine.chains.recognition import Plan

# Measured on LeNet: below about 512 samples the overhead of each operation shows, far above nothing is gained, and the
# memory of a group grows with its samples.
SAMPLES = 512
LARGEST = 64
# So that workers find something to share out also when there are few nodes.
LEAST_GROUPS = 4
# Measured with AVX-512, convolutions of 6 to 64 channels, batches of 2 to 200, 8 and 128 nodes: with more
# multiplications in the convolutions of a node's batch than this, torch's own beat ours, which save overhead. Torch's
# compute their output channels in blocks, so where these are not full, ours win that much longer.
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
def cost_of(plan: Plan, row: Tensor, inputs: Tensor) -> Cost:
    """What one sample of `inputs` [G, B, ...] takes with the parameters `row` [1, d] and the batch last."""
    x = BATCH_LAST.arranged(inputs[:1, :1])
    multiplications = in_blocks = numbers = 0
    for layer in plan.layers(BATCH_LAST):
        x, kept = layer.forward(x, layer.views(row))
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

    >>> group_size(nodes=512, batch=16)
    32
    >>> group_size(nodes=8, batch=100)
    2
    """
    return max(1, min(SAMPLES // batch, LARGEST, nodes // LEAST_GROUPS))


def is_worthwhile(cost: Cost, nodes: int, batch: int) -> bool:
    """Whether groups beat one model after another.

    >>> is_worthwhile(Cost(multiplications=600_000, in_blocks=1_200_000, numbers=31_000), nodes=64, batch=100)
    True
    >>> is_worthwhile(Cost(multiplications=600_000, in_blocks=600_000, numbers=31_000), nodes=64, batch=100)
    False
    >>> is_worthwhile(Cost(multiplications=16_000_000, in_blocks=16_000_000, numbers=860_000), nodes=64, batch=1)
    False
    """
    # batch * multiplications <= FEW_MULTIPLICATIONS * (in_blocks / multiplications), also without any.
    is_light = batch * cost.multiplications**2 <= FEW_MULTIPLICATIONS * cost.in_blocks
    return is_light and cost.numbers <= FEW_NUMBERS and group_size(nodes, batch) > 1
