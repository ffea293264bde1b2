"""What a run notes in every round: training loss and speed."""

from typing import Any

import torch
from torch import Tensor


class Meter:
    """The training loss of some nodes since the last evaluation, and their speed since the start.

    >>> meter = Meter(nodes=2)
    >>> meter.add(torch.tensor([1.0, 3.0]), samples=20, seconds=0.5)
    >>> meter.train_loss, meter.samples_per_second
    (2.0, 40.0)
    """

    def __init__(self, nodes: int) -> None:
        self._loss = torch.zeros(nodes, dtype=torch.float64)
        self._rounds = 0
        self._samples = 0
        self.seconds = 0.0

    def add(self, losses: Tensor, samples: int, seconds: float) -> None:
        """Note a round: every node's loss, and all nodes' samples and time."""
        self._loss += losses
        self._rounds += 1
        self._samples += samples
        self.seconds += seconds

    @property
    def train_loss(self) -> float | None:
        """The mean loss over nodes and rounds since the last evaluation; None before the first round."""
        return float(self._loss.mean()) / self._rounds if self._rounds else None

    @property
    def samples_per_second(self) -> float | None:
        """All samples over all time; None before the first round."""
        return self._samples / self.seconds if self.seconds else None

    def forget_losses(self) -> None:
        """Begin the training loss anew: it has been evaluated."""
        self._loss.zero_()
        self._rounds = 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"loss": self._loss, "rounds": self._rounds, "samples": self._samples, "seconds": self.seconds}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self._loss.copy_(saved["loss"])
        self._rounds, self._samples, self.seconds = saved["rounds"], saved["samples"], saved["seconds"]
