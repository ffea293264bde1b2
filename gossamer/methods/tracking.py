"""What the tracking methods share: a vector y that follows the network's average of some local signal.

    Y <- W Y + signal_new - signal_old            (the mean of Y stays the mean of the signal)
    X <- W X - eta * (a direction made of Y)

The X and Y that are mixed in round r + 1 are both known when round r ends, and no step size is in them. So one message
[x ; y] per neighbour leaves at the end of a step and is waited for at the beginning of the next: it travels while the
next gradient is computed, without any staleness. For the first round nothing needs to be sent: all nodes start equal.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from gossamer.methods.contract import State
from gossamer.network.contract import Network, Pending, Ready


class FirstMessage(Ready):
    """The message of a method's first round, which is known without sending."""


@dataclass
class TrackingState(State):
    """The last signal, its tracked average y, and the message [W x ; W y] that is under way.

    A tracking method's `initial` returns `TrackingState.start(x)`, or that of a subclass with more fields. Its `step`
    begins with `wx, wy = state.mixed.wait()` and ends with `state.send(x, y, net, round + 1)`.

    >>> state = TrackingState.start(torch.ones(2))
    >>> state.is_first_step, state.mixed.wait()
    (True, (tensor([1., 1.]), tensor([0., 0.])))
    """

    keeps: ClassVar[tuple[str, ...] | None] = ("signal",)

    signal: Tensor
    y: Tensor
    mixed: Pending

    @classmethod
    def start(cls, x: Tensor, **fields: Any) -> Self:
        """signal = 0 and y = 0; all nodes start equal, so the first message is known: W X = X, W Y = 0."""
        return cls(torch.zeros_like(x), torch.zeros_like(x), FirstMessage(x.clone(), torch.zeros_like(x)), **fields)

    @property
    def is_first_step(self) -> bool:
        """Whether no step has been made and no state loaded."""
        return isinstance(self.mixed, FirstMessage)

    def rejoin(self, x: Tensor, net: Network, round: int) -> None:
        """Y <- signal: the mean of Y is again the mean of the signal, over any set of nodes. Then [x ; y] leaves."""
        self.send(x, self.signal.clone(), net, round)

    def send(self, x: Tensor, y: Tensor, net: Network, round: int) -> None:
        """Send [x ; y] for `round`; `y` is kept, and the answer is written into the storage of the previous y."""
        wx, _ = self.mixed.wait()
        previous, self.y = self.y, y
        self.mixed = net.mix(x, y, round=round, out=(wx, previous))

    def tracked(self) -> Tensor:
        """Y."""
        return self.y

    def correction(self) -> Tensor:
        """C = signal - W Y: what the paper writes c_i, with mean zero over the nodes."""
        return self.signal - self.mixed.wait()[1]
