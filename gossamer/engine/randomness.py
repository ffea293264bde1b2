"""Models that draw random numbers in their forward pass (Dropout).

A device's generator is one for the whole process. Such a model's nodes therefore take turns on one worker, and each
node has a generator state of its own that is put in place for its turn: the result depends neither on the order of
nodes nor on anything else that draws, and whoever draws afterwards finds the generator as it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from gossamer.engine.devices import generator_state, set_generator_state

CPU = torch.device("cpu")


class NodeGenerators:
    """One state of the device's global generator for each node."""

    def __init__(self, seed: int, nodes: int, device: torch.device = CPU) -> None:
        streams = [np.random.SeedSequence([seed, node, 1]).generate_state(1, np.uint64) for node in range(nodes)]
        self.states = [torch.Generator(device).manual_seed(int(s[0])).get_state() for s in streams]
        self._device = device

    def enter(self, node: int) -> None:
        """Put the node's state in place for good."""
        set_generator_state(self._device, self.states[node])

    @contextmanager
    def turn(self, node: int) -> Iterator[None]:
        """The node's state is in place inside of the `with`; it is kept for the next turn, and what was there returns.

        >>> outside = torch.get_rng_state()
        >>> generators = NodeGenerators(seed=0, nodes=2)
        >>> with generators.turn(1):
        ...     first = torch.rand(1)
        >>> with generators.turn(1):
        ...     bool(first == torch.rand(1))
        False
        >>> torch.equal(outside, torch.get_rng_state())
        True
        """
        outside = generator_state(self._device)
        self.enter(node)
        try:
            yield
        finally:
            self.states[node] = generator_state(self._device)
            set_generator_state(self._device, outside)
