"""The simple layers of a group of nodes."""

from typing import Any

import torch
from torch import Tensor

from gossamer.engine.chains.contract import Fixed
from gossamer.engine.node_models import Slot


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

    It works in place.
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
