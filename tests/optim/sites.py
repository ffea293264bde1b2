"""A site that trains with checkpoints: everything that a restart must bring back plays a part in its result."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.optim import Checkpoints, DecentralizedOptimizer, MomentumTracking
from gossamer.topology import Topology
from tests.optim.tasks import flat

PATIENCE = 20.0


class Site:
    """Its batches come from a generator of its own, its dropout from the global one, its step size from a scheduler."""

    def __init__(
        self,
        directory: Path | str,
        topology: Topology,
        make: Callable[..., DecentralizedOptimizer] = MomentumTracking,
        *,
        every: int = 3,
        name: str | None = None,
        **options: Any,
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1, dtype=torch.float32)
        )
        options = {"lr": 0.02, "weight_decay": 1e-3, "timeout": PATIENCE, **options}
        self.optimizer = make(self.model.parameters(), topology=topology, **options)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 4, gamma=0.5)
        self.batches = torch.Generator()
        extra = {"batches": self.batches, "scheduler": self.scheduler}
        self.saver = Checkpoints(directory, self.model, self.optimizer, every=every, extra=extra, name=name)
        own = zlib.crc32(self.saver.name.encode())
        self.batches.manual_seed(own)
        self.shift = own % 7 / 3
        torch.manual_seed(own)

    def backward(self) -> None:
        inputs = torch.randn(6, 3, generator=self.batches) + self.shift
        targets = torch.randn(6, 1, generator=self.batches) - self.shift
        self.optimizer.zero_grad()
        (self.model(inputs) - targets).square().mean().backward()

    def train(self, rounds: int, before: Callable[[int], None] = lambda r: None) -> Tensor:
        """Go on until `rounds` rounds are made."""
        for r in self.saver.rounds(rounds):
            before(r)
            self.backward()
            self.optimizer.step()
            self.scheduler.step()
        return self.result()

    def result(self) -> Tensor:
        """All that was learned: parameters and running statistics."""
        return torch.cat([flat(self.model), *(b.reshape(-1).float() for b in self.model.buffers())])

    def vector(self, name: str) -> Tensor:
        """A part of the optimizer's state, over all parameters."""
        return torch.cat([entry[name].reshape(-1) for entry in self.optimizer.state.values()]).clone()
