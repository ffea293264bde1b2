"""A dataset dealt out to nodes."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gossamer.data.augment import Pipeline
from gossamer.data.batches import rounds_per_epoch
from gossamer.data.datasets import Dataset
from gossamer.data.partition import Partition
from gossamer.errors import InputError


@dataclass(frozen=True, eq=False)
class NodeData:
    """What each node sees: a dataset and who holds which of its training samples.

    Made by `dataset.split(recipe)`; prints as the partition's table.

    >>> from gossamer import data
    >>> nodes = data.load("digits").split(data.partition.iid(nodes=4))
    >>> nodes.nodes, nodes.sizes
    (4, [324, 324, 324, 324])
    """

    dataset: Dataset
    partition: Partition

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.partition)

    @property
    def sizes(self) -> list[int]:
        """The number of training samples of each node."""
        return list(self.partition.sizes)

    def rounds_per_epoch(self, batch_size: int) -> int:
        """The rounds in which an average node passes once over its own data: ceil(mean size / batch size)."""
        return rounds_per_epoch(self.sizes, batch_size)

    @cached_property
    def pipeline(self) -> Pipeline:
        """How stored samples become batches."""
        return Pipeline(self.dataset.normalization, self.dataset.augmentation)

    @cached_property
    def validation(self) -> tuple[Tensor, Tensor]:
        """The common validation set: inputs and targets."""
        held = self.partition.validation
        return self.dataset.train_inputs[held], self.dataset.train_targets[held]

    @property
    def test(self) -> tuple[Tensor, Tensor]:
        """The common test set: inputs and targets."""
        return self.dataset.test_inputs, self.dataset.test_targets

    def loss_weights(self, node_weight: str) -> Tensor:
        """The factor on each node's loss: 1 for "equal", N n_i / sum(n) for "size"; their mean is 1."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        if node_weight == "equal":
            return torch.ones_like(sizes)
        if node_weight == "size":
            return sizes / sizes.mean()
        raise InputError(f"node_weight is 'equal' or 'size', not {node_weight!r}.")

    def __str__(self) -> str:
        return str(self.partition)
