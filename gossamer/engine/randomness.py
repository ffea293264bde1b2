"""Models that draw random numbers in their forward pass (Dropout).

torch's CPU generator is one for the whole process. Such a model's nodes therefore take turns on one worker, and each
node has a generator state of its own that is put in place before its turn: the result depends neither on the order of
nodes nor on anything else that draws.
"""

import numpy as np
import torch
from torch import Tensor, nn


def draws_in_forward(module: nn.Module, batch: Tensor) -> bool:
    """Whether the model's forward pass in training mode takes numbers from torch's global generator."""
    kept = torch.get_rng_state()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            module(batch)
        return not torch.equal(kept, torch.get_rng_state())
    finally:
        torch.set_rng_state(kept)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])


class NodeGenerators:
    """One state of torch's global generator for each node."""

    def __init__(self, seed: int, nodes: int) -> None:
        streams = [np.random.SeedSequence([seed, node, 1]).generate_state(1, np.uint64) for node in range(nodes)]
        self.states = [torch.Generator().manual_seed(int(s[0])).get_state() for s in streams]

    def enter(self, node: int) -> None:
        """Put the node's state in place."""
        torch.set_rng_state(self.states[node])

    def leave(self, node: int) -> None:
        """Keep the node's state for its next turn."""
        self.states[node] = torch.get_rng_state()
