"""Max and mean pooling of G nodes at once."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class Windows:
    """Which pixels a pooling looks at: for each place in the window, one pixel of every output."""

    def __init__(
        self, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int]
    ) -> None:
        self.size = size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation

    def pad(self, x: Tensor, value: float) -> Tensor:
        """x [G, H, C, W, B] with its padding."""
        high, wide = self.padding
        return functional.pad(x, (0, 0, wide, wide, 0, 0, high, high), value=value) if high or wide else x

    def cut(self, dx: Tensor) -> Tensor:
        """Undo `pad`."""
        high, wide = self.padding
        if not (high or wide):
            return dx
        return dx[:, high : dx.shape[1] - high, :, wide : dx.shape[3] - wide].contiguous()

    def places(self, x: Tensor) -> Iterator[Tensor]:
        """Views of a padded image, one per place in the window, row by row."""
        along_height = self._slices(0, x.shape[1])
        along_width = self._slices(1, x.shape[3])
        for rows in along_height:
            for columns in along_width:
                yield x[:, rows, :, columns]

    def tile(self, shape: torch.Size) -> bool:
        """Whether each pixel of a padded image lies in exactly one window, so that no gradients need be added up."""
        fits = shape[1] % self.size[0] == 0 and shape[3] % self.size[1] == 0
        return fits and self.size == self.stride and self.dilation == (1, 1)

    def _slices(self, axis: int, length: int) -> list[slice]:
        size, stride, dilation = self.size[axis], self.stride[axis], self.dilation[axis]
        count = (length - dilation * (size - 1) - 1) // stride + 1
        starts = [dilation * k for k in range(size)]
        return [slice(start, start + stride * (count - 1) + 1, stride) for start in starts]


class MaxPool:
    """The largest pixel of each window; of equal ones the first, as in torch."""

    trains = False

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Any]:
        """A running maximum over the places in the window; kept is by how much each place raises it."""
        x = self.windows.pad(x, -math.inf)
        y, *others = self.windows.places(x)
        rises = []
        for place in others:
            rises.append(place - y)
            y = torch.maximum(y, place)
        return (y if others else y.clone()), (x.shape, rises)

    def backward(self, dy: Tensor, kept: Any, rows: Tensor, grads: Tensor, wanted: bool) -> Tensor:
        """From the last place to the first: a place takes the gradient where it raised the maximum."""
        shape, rises = kept
        alone = self.windows.tile(shape)
        dx = dy.new_empty(shape) if alone else dy.new_zeros(shape)
        first, *others = self.windows.places(dx)
        # threshold_backward gives dy where rise > 0, else 0, far faster than comparisons and masks.
        for place, rise in reversed(list(zip(others, rises, strict=True))):
            if alone:
                taken = torch.ops.aten.threshold_backward.grad_input(dy, rise, 0, grad_input=place)
            else:
                taken = torch.ops.aten.threshold_backward(dy, rise, 0)
                place.add_(taken)
            dy = dy - taken
        first.copy_(dy) if alone else first.add_(dy)
        return self.windows.cut(dx)


class MeanPool:
    """The mean of each window, padding counted as zeros."""

    trains = False

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Any]:
        """The sum over the places in the window, divided by their number."""
        x = self.windows.pad(x, 0.0)
        first, *others = self.windows.places(x)
        y = first.clone()
        for place in others:
            y.add_(place)
        return y.div_(1 + len(others)), x.shape

    def backward(self, dy: Tensor, kept: Any, rows: Tensor, grads: Tensor, wanted: bool) -> Tensor:
        """Every place takes an equal share."""
        dx = dy.new_zeros(kept)
        share = dy / math.prod(self.windows.size)
        for target in self.windows.places(dx):
            target.add_(share)
        return self.windows.cut(dx)


class GlobalMean:
    """The mean over all positions, as an image of one pixel."""

    trains = False

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Any]:
        """[G, H, C, W, B] to [G, 1, C, 1, B]."""
        return (x.sum(1, keepdim=True).sum(3, keepdim=True)).div_(x.shape[1] * x.shape[3]), x.shape

    def backward(self, dy: Tensor, kept: Any, rows: Tensor, grads: Tensor, wanted: bool) -> Tensor:
        """Every position takes an equal share."""
        shape: torch.Size = kept
        return (dy / (shape[1] * shape[3])).expand(shape).contiguous()
