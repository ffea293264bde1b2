"""The order in which every node walks through its own data."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer._common.checks import whole_number
from gossamer.errors import InputError


class NodeBatches:
    """Shuffled batches of sample indices, one independent stream per node.

    Rounds are synchronous: every node takes one batch per round.

    - All nodes hold equally many samples: an epoch is one pass over a node's own data, ceil(n / batch) rounds, the last
      one with the samples that are left.
    - Sizes differ: an epoch is ceil(mean n_i / batch) rounds, and every node cycles through its own shuffled data. A
      batch that reaches the end goes on with a fresh shuffle, so all batches are full, except on a node that
      holds less than a batch: it gives all it has in every round.

    `generators[i]` is node i's only source of randomness; pass it to the augmentation too, and the state saved here
    covers both. Nodes share nothing, so different nodes may be served from different threads.

    >>> batches = NodeBatches([torch.arange(0, 5), torch.arange(5, 10)], batch_size=3, seed=0)
    >>> batches.rounds_per_epoch, [len(batches.next(0)) for _ in range(4)]
    (2, [3, 2, 3, 2])
    """

    def __init__(self, indices: Sequence[Tensor], batch_size: int, seed: int = 0) -> None:
        if whole_number(seed, "the seed", least=None) < 0:
            raise InputError(f"A seed is a number 0 or above, not {seed}.")
        empty = [node for node, own in enumerate(indices) if len(own) == 0]
        if empty or not indices:
            what = f"node {empty[0]} holds no samples" if empty else "there are no nodes"
            raise InputError(f"Batches cannot be drawn because {what}: choose a partition that leaves no node empty.")
        self.batch_size = batch_size
        self.sizes = [len(own) for own in indices]
        self.equal_sizes = len(set(self.sizes)) == 1
        self.rounds_per_epoch = rounds_per_epoch(self.sizes, batch_size)
        self.generators = [_generator(seed, node) for node in range(len(indices))]
        self._indices = [own.to(torch.int64) for own in indices]
        self._order = [self._shuffled(node) for node in range(len(indices))]
        self._position = [0] * len(indices)

    def next(self, node: int) -> Tensor:
        """The sample indices of the node's next batch (read only: it may be a view)."""
        size, start = self.sizes[node], self._position[node]
        if start == size:
            self._order[node], start = self._shuffled(node), 0
        if not self.equal_sizes and start + self.batch_size > size >= self.batch_size:
            rest, self._order[node] = self._order[node][start:], self._shuffled(node)
            self._position[node] = self.batch_size - len(rest)
            return torch.cat([rest, self._order[node][: self._position[node]]])
        self._position[node] = min(start + self.batch_size, size)
        return self._order[node][start : self._position[node]]

    def smallest(self, node: int) -> int:
        """The size of the node's smallest batch.

        >>> NodeBatches([torch.arange(0, 5), torch.arange(5, 10)], batch_size=3).smallest(0)
        2
        """
        size = self.sizes[node]
        left = size % self.batch_size if self.equal_sizes else 0
        return left or min(self.batch_size, size)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that decides the batches to come: generators [N, bytes], orders (concatenated), positions [N]."""
        return {
            "generators": torch.stack([generator.get_state() for generator in self.generators]),
            "orders": torch.cat(self._order),
            "positions": torch.tensor(self._position),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        self._refuse_foreign(state)
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved.clone())  # torch crashes on a view that does not start its storage
        self._order = list(state["orders"].clone().split(self.sizes))
        self._position = state["positions"].tolist()

    def _shuffled(self, node: int) -> Tensor:
        return self._indices[node][torch.randperm(self.sizes[node], generator=self.generators[node])]

    def _refuse_foreign(self, state: Mapping[str, Any]) -> None:
        nodes = len(self.sizes)
        ours = {
            "generators": (nodes, len(self.generators[0].get_state())),
            "orders": (sum(self.sizes),),
            "positions": (nodes,),
        }
        theirs = {name: tuple(state[name].shape) if name in state else None for name in ours}
        same = theirs == ours and all(
            0 <= position <= len(own) and torch.equal(own.sort().values, saved.sort().values)
            for own, saved, position in zip(
                self._indices, state["orders"].split(self.sizes), state["positions"].tolist(), strict=True
            )
        )
        if not same:
            raise InputError(
                "The saved batch order belongs to another partition of the data: resume with the dataset, the "
                "partition and its seed that the run was started with."
            )


def rounds_per_epoch(sizes: Sequence[int], batch_size: int) -> int:
    """ceil(mean number of samples of a node / batch size)."""
    if whole_number(batch_size, "the batch size", least=None) < 1:
        raise InputError(f"A batch holds at least one sample, not {batch_size}.")
    return -(-sum(sizes) // (len(sizes) * batch_size))


def _generator(seed: int, node: int) -> torch.Generator:
    """A generator of its own for every (seed, node)."""
    mixed = np.random.SeedSequence([seed, node]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))
