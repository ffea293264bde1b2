"""What the layers of a chain have in common, and the two ways in which numbers can lie in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gossamer.engine.node_models import Slot

Pair = tuple[int, int]


class Layer(Protocol):
    """One layer of G nodes, each with its own parameters.

    It may work in place on what it is given, the output of the layer before it or the gradient from the one behind it:
    no layer but a ReLU keeps its own output, and none its own gradient.
    """

    trains: bool
    """Whether it has parameters."""

    def views(self, rows: Tensor) -> Any:
        """The layer's parameters, or their gradients, as views into `rows` [G, d]: `own` and `grads` below."""
        ...

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The output for the parameters `own`, and what `backward` will want to know."""
        ...

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor | None:
        """Write the parameters' gradients into `grads` and return the input's gradient if it is `wanted`."""
        ...


class Fixed:
    """A layer without parameters."""

    trains = False

    def views(self, rows: Tensor) -> None:
        """Nothing."""


class ReLU(Fixed):
    """y = max(x, 0), in place, however the numbers lie."""

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The positive part."""
        y = x.relu_()
        return y, y

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """dx = dy where y > 0, else 0."""
        dx: Tensor = torch.ops.aten.threshold_backward.grad_input(dy, kept, 0, grad_input=dy)
        return dx


@dataclass(frozen=True)
class Windows:
    """Which pixels a pooling looks at."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)


class Pass(NamedTuple):
    """How many models take how many samples each in one pass."""

    models: int
    samples: int


@dataclass(frozen=True)
class Arrangement:
    """How the numbers of a group lie in memory, and the layers that compute with them there."""

    convolution: Callable[[Slot, Pair, Pair], Layer]
    """Weights, stride, padding; without the bias."""
    linear: Callable[[Slot], Layer]
    """Weights; without the bias."""
    bias: Callable[[Slot], Layer]
    max_pool: Callable[[Windows], Layer]
    mean_pool: Callable[[Windows], Layer]
    global_mean: Callable[[], Layer]
    group_norm: Callable[[int, float, tuple[Slot, Slot] | None], Layer]
    """The number of groups, eps, and the slots of gamma and beta."""
    flatten: Callable[[], Layer]
    relu: Callable[[], Layer]

    arranged: Callable[[Tensor], Tensor]
    """A copy of the inputs [G, B, C, H, W] or [G, B, F] as the first layer wants them."""
    outputs: Callable[[Tensor], Tensor]
    """What the last layer gives as [G, classes, B]."""
    gradient: Callable[[Tensor], Tensor]
    """The opposite of `outputs`: a gradient [G, classes, B] as the last layer wants it."""

    evaluation: Pass
    """What is fast when models are only evaluated."""
