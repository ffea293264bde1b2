"""What the tracking methods share: a vector y that follows the network's average of some local signal.

    Y <- W Y + signal_new - signal_old            (the mean of Y stays the mean of the signal)
    X <- W X - eta * (a direction made of Y)

The X and Y that are mixed in round r + 1 are both known when round r ends, and no step size is in them. So one message
[x ; y] per neighbour leaves at the end of a step and is waited for at the beginning of the next: it travels while the
next gradient is computed, without any staleness. In round 0 nothing needs to be sent: all nodes start equal, W X = X.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer.methods.contract import State
from gossamer.network.contract import Network, Pending, Ready


@dataclass
class TrackingState(State):
    """The last signal, its tracked average, and the message [W x ; W y] that is under way."""

    keeps: ClassVar[tuple[str, ...] | None] = ("signal",)

    signal: Tensor
    y: Tensor
    mixed: Pending

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """Y <- signal, whoever the nodes are: the mean of Y is the mean of the signal again. Then [x ; y] leaves."""
        self.send(x, self.signal.clone(), net, round)

    def send(self, x: Tensor, y: Tensor, net: Network, round: int) -> None:
        """Let [x ; y] leave for `round`; `y` is kept, and the storage of the y before it takes the answer."""
        wx, _ = self.mixed.wait()
        previous, self.y = self.y, y
        self.mixed = net.mix(x, y, round=round, out=(wx, previous))

    def correction(self) -> Tensor:
        """C = signal - W Y: what the paper writes c_i, with mean zero over the nodes."""
        return self.signal - self.mixed.wait()[1]


def start(x: Tensor) -> tuple[Tensor, Tensor, Ready]:
    """signal = 0, y = 0, and the message of round 0, which is known without sending: W X = X, W Y = 0."""
    return torch.zeros_like(x), torch.zeros_like(x), Ready(x.clone(), torch.zeros_like(x))
