"""Max and mean pooling of G nodes at once.

To torch, all images together are one volume of H x (G C) x W places with B channels, and channels are what it pools
side by side: a window of kh x 1 x kw places pools every image of every node in one call, however small the batch.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.engine.chains.contract import Fixed, Pair, Windows


class MaxPool(Fixed):
    """The largest pixel of each window; of equal ones the first."""

    def __init__(self, windows: Windows) -> None:
        self._windows = (
            _places(windows.size, 1),
            _places(windows.stride, 1),
            _places(windows.padding, 0),
            _places(windows.dilation, 1),
            False,
        )

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The maxima; kept is where they were."""
        volume = _volume(x)
        y, place = torch.ops.aten.max_pool3d_with_indices(volume, *self._windows)
        return _images(y, len(x)), (volume, place)

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """A pixel takes the gradients of the windows whose maximum it was."""
        volume, place = kept
        dx = torch.ops.aten.max_pool3d_with_indices_backward(_volume(dy), volume, *self._windows, place)
        return _images(dx, len(dy))


class MeanPool(Fixed):
    """The mean of each window, padding counted as zeros."""

    def __init__(self, windows: Windows) -> None:
        self._padding = windows.padding
        # Padded beforehand: torch refuses a volume that is smaller than the window before it is padded.
        self._windows = (_places(windows.size, 1), _places(windows.stride, 1), [0, 0, 0], False, True, None)

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The means."""
        tall, wide = self._padding
        volume = _volume(functional.pad(x, (0, 0, wide, wide, 0, 0, tall, tall)) if tall or wide else x)
        return _images(torch.ops.aten.avg_pool3d(volume, *self._windows), len(x)), volume

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """Every pixel of a window takes an equal share."""
        dx = _images(torch.ops.aten.avg_pool3d_backward(_volume(dy), kept, *self._windows), len(dy))
        tall, wide = self._padding
        return dx[:, tall : dx.shape[1] - tall, :, wide : dx.shape[3] - wide]


def _places(pair: Pair, between: int) -> list[int]:
    """Height and width with what applies along the axis of nodes and channels between them."""
    return [pair[0], between, pair[1]]


def _volume(x: Tensor) -> Tensor:
    """[G, H, C, W, B] as [1, B, H, G C, W]; no copy where the rows lie outermost in memory, as convolutions do it."""
    groups, height, channels, width, batch = x.shape
    return x.transpose(0, 1).reshape(1, height, groups * channels, width, batch).permute(0, 4, 1, 2, 3)


def _images(volume: Tensor, groups: int) -> Tensor:
    """The inverse of `_volume`, with the batch innermost in memory again where torch has moved it."""
    _, batch, height, _, width = volume.shape
    last = volume.permute(0, 2, 3, 4, 1).contiguous()
    return last.view(height, groups, -1, width, batch).transpose(0, 1)


class GlobalMean(Fixed):
    """The mean over all positions, as an image of one pixel."""

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """[G, H, C, W, B] to [G, 1, C, 1, B]."""
        return (x.sum(1, keepdim=True).sum(3, keepdim=True)).div_(x.shape[1] * x.shape[3]), x.shape

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """Every position takes an equal share."""
        shape: torch.Size = kept
        return (dy / (shape[1] * shape[3])).expand(shape).contiguous()
