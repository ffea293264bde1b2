"""What each node sees: datasets, partitions of them among nodes, batches and augmentation.

>>> data = load("digits")
>>> nodes = data.split(partition.k_class(nodes=8, k=2, seed=0))
>>> nodes.nodes
8
"""

from gossamer.data import partition
from gossamer.data.batches import Augmentation, NodeBatches, Normalization, Pipeline
from gossamer.data.datasets import Dataset, NodeData
from gossamer.data.erasing import Erasing
from gossamer.data.loading import get, load, register, status, verify
from gossamer.data.site_tables import sites

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
    "register",
    "sites",
    "status",
    "verify",
]
