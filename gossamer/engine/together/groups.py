"""When nodes are computed in groups, and how many form one.

The decision rests on the model, the number of nodes and the batch size alone: never on a clock or on the number of
workers, because the rounding may depend on it.
"""

from torch import nn

# Measured on LeNet: below about 512 samples the overhead of each operation shows, far above nothing is gained, and the
# memory of a group grows with its samples.
SAMPLES = 512
LARGEST = 64
# So that workers find something to share out also when there are few nodes.
LEAST_GROUPS = 4
# Measured: on batches of some size our arrangement beats torch's for narrow convolutions only.
NARROW = 16
SIZEABLE = 64
# Measured: for batches up to this size, groups of several nodes win whatever the model.
SMALL = 32


def group_size(nodes: int, batch: int) -> int:
    """The number of nodes per group that is fast for batches of this size, whatever the number of workers.

    >>> group_size(nodes=512, batch=16)
    32
    >>> group_size(nodes=8, batch=100)
    2
    """
    return max(1, min(SAMPLES // batch, LARGEST, nodes // LEAST_GROUPS))


def is_worthwhile(module: nn.Module, nodes: int, batch: int) -> bool:
    """Whether groups beat one model after another."""
    widest = max((m.out_channels for m in module.modules() if isinstance(m, nn.Conv2d)), default=0)
    if batch <= SMALL:
        return group_size(nodes, batch) > 1
    return 0 < widest <= NARROW and batch >= SIZEABLE
