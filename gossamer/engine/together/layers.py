"""The layers of a group of nodes: what they share, and the simple ones.

The batch is the **last** axis: images are [G, H, C, W, B] and vectors [G, F, B] for G nodes with B samples each. A
row's pixels of all samples then lie side by side in memory, so that a convolution is a few products of plain matrices
and a pooling one call of torch, however small the batch.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from gossamer.engine.flat import Slot


class Layer(Protocol):
    """One layer of G nodes, each with its own parameters."""

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
    """y = max(x, 0), in place: no layer but this one keeps its own output, and none its own gradient."""

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The positive part."""
        y = x.relu_()
        return y, y

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """dx = dy where y > 0, else 0."""
        dx: Tensor = torch.ops.aten.threshold_backward.grad_input(dy, kept, 0, grad_input=dy)
        return dx


class Flatten(Fixed):
    """[G, H, C, W, B] to [G, CHW, B], in the order in which torch flattens an image."""

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The images as vectors; vectors stay as they are."""
        if x.dim() == 3:
            return x, None
        groups, height, channels, width, batch = x.shape
        return x.transpose(1, 2).reshape(groups, channels * height * width, batch), x.shape

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """The vectors as images."""
        if kept is None:
            return dy
        groups, height, channels, width, batch = kept
        return dy.view(groups, channels, height, width, batch).transpose(1, 2).contiguous()


class Linear:
    """y = A x with A [out, in]; the bias is a layer of its own."""

    trains = True

    def __init__(self, weight: Slot) -> None:
        self.weight = weight

    def views(self, rows: Tensor) -> Tensor:
        """A, [G, out, in]."""
        return self.weight.view(rows)

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """A x for every node and sample."""
        return torch.bmm(own, x), x

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor | None:
        """dA = dy x^T and dx = A^T dy."""
        torch.bmm(dy, kept.transpose(1, 2), out=grads)
        return torch.bmm(own.transpose(1, 2), dy) if wanted else None


class Bias:
    """y = x + b with one b per channel or feature, after a convolution, a linear layer or their max pooling.

    It works in place: none of these keeps its own output.
    """

    trains = True

    def __init__(self, bias: Slot) -> None:
        self.bias = bias

    def views(self, rows: Tensor) -> Tensor:
        """b, [G, C]."""
        return self.bias.view(rows)

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """x + b, in place."""
        return x.add_(own[:, :, None] if x.dim() == 3 else own[:, None, :, None, None]), None

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """db = the sum of dy over everything but the channel, and dx = dy."""
        # Summing over the outer axis first is a sum of long vectors, several times faster than all axes at once.
        torch.sum(dy if dy.dim() == 3 else dy.sum(1), 2 if dy.dim() == 3 else (2, 3), out=grads)
        return dy
