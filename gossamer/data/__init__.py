"""What each node sees: datasets, partitions of them among nodes, batches and augmentation.

>>> data = load("digits")
>>> nodes = data.split(partition.k_class(nodes=8, k=2, seed=0))
>>> nodes.nodes
8
"""

from gossamer.data import partition
from gossamer.data.augment import Augmentation, Pipeline
from gossamer.data.batches import NodeBatches
from gossamer.data.datasets import Dataset
from gossamer.data.erasing import Erasing
from gossamer.data.loading import get, load, status, verify
from gossamer.data.normalization import Normalization
from gossamer.data.split import NodeData

__all__ = [
    "Augmentation",
    "Dataset",
    "Erasing",
    "NodeBatches",
    "NodeData",
    "Normalization",
    "Pipeline",
    "get",
    "load",
    "partition",
    "status",
    "verify",
]
