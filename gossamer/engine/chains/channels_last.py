"""Layers of one node with torch's own operations, for wide layers and large batches.

Images are [B, C, H, W] with the channels innermost in memory, vectors [B, F]. What is saved against autograd: the bias
of a convolution is added after the max pooling behind it, and its gradient, which oneDNN computes slowly, is summed
there too, over a fraction of the numbers; the input is turned round once and not again for the backward pass; gradients
are written to their place instead of added to zeros.
"""

from typing import Any

import torch
from torch import Tensor

from gossamer.engine.chains.contract import Arrangement, Fixed, Pair, Pass, ReLU, Windows
from gossamer.engine.node_models import Slot

aten = torch.ops.aten


class Convolution:
    """y = W * x; the bias is a layer of its own."""

    trains = True

    def __init__(self, weight: Slot, stride: Pair, padding: Pair) -> None:
        self.weight, self.stride, self.padding = weight, stride, padding

    def views(self, rows: Tensor) -> Tensor:
        """The weights [O, C, kh, kw], channels last where there are several."""
        return self.weight.view(rows[0])

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """W * x for every sample."""
        return torch.conv2d(x, own, None, self.stride, self.padding), x

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor | None:
        """Both gradients by torch."""
        dx: Tensor | None
        dx, gradient, _ = aten.convolution_backward(
            dy, kept, own, None, self.stride, self.padding, (1, 1), False, (0, 0), 1, (wanted, True, False)
        )
        grads.copy_(gradient)
        return dx


class Linear:
    """y = x A^T with A [out, in]; the bias is a layer of its own."""

    trains = True

    def __init__(self, weight: Slot) -> None:
        self.weight = weight

    def views(self, rows: Tensor) -> Tensor:
        """A."""
        return self.weight.view(rows[0])

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """A x for every sample."""
        return x @ own.t(), x

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor | None:
        """dA = dy^T x and dx = dy A."""
        # Not straight into the gradients, which lie at any address, out of the cache: that takes a tenth longer.
        grads.copy_(dy.t() @ kept)
        return dy @ own if wanted else None


class Bias:
    """y = x + b with one b per channel or feature, in place."""

    trains = True

    def __init__(self, bias: Slot) -> None:
        self.bias = bias

    def views(self, rows: Tensor) -> Tensor:
        """b, [C]."""
        return self.bias.view(rows[0])

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """x + b."""
        return x.add_(own if x.dim() == 2 else own[:, None, None]), None

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """db = the sum of dy over everything but the channel, and dx = dy."""
        torch.sum(dy, 0 if dy.dim() == 2 else (0, 2, 3), out=grads)
        return dy


class MaxPool(Fixed):
    """The largest pixel of each window; of equal ones the first."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows.size, windows.stride, windows.padding, windows.dilation, False

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The maxima; kept is where they were."""
        y, place = aten.max_pool2d_with_indices(x, *self._windows)
        return y, (x.shape, place)

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """A pixel takes the gradients of the windows whose maximum it was."""
        shape, place = kept
        # The operation asks for its input, but reads no number of it: the largest tensor of all need not be kept.
        x = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=torch.channels_last)
        dx: Tensor = aten.max_pool2d_with_indices_backward(dy, x, *self._windows, place)
        return dx


class MeanPool(Fixed):
    """The mean of each window, padding counted as zeros."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows.size, windows.stride, windows.padding, False, True, None

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The means."""
        return aten.avg_pool2d(x, *self._windows), x

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """Every pixel of a window takes an equal share."""
        dx: Tensor = aten.avg_pool2d_backward(dy, kept, *self._windows)
        return dx


class GlobalMean(Fixed):
    """The mean over all positions, as an image of one pixel."""

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """[B, C, H, W] to [B, C, 1, 1]."""
        return x.mean((2, 3), keepdim=True), x.shape

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """Every position takes an equal share."""
        shape: torch.Size = kept
        return (dy / (shape[2] * shape[3])).expand(shape).contiguous(memory_format=torch.channels_last)


class GroupNorm:
    """y = gamma z + beta with z = (x - mean) / sqrt(var + eps), per sample and group of channels.

    Torch computes the variance as mean(x^2) - mean^2 where channels come last, so digits are lost where the mean is
    many times the standard deviation.
    """

    def __init__(self, groups: int, eps: float, affine: tuple[Slot, Slot] | None) -> None:
        self.groups, self.eps, self.affine = groups, eps, affine
        self.trains = affine is not None

    def views(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """Gamma and beta, [C] each."""
        return None if self.affine is None else (self.affine[0].view(rows[0]), self.affine[1].view(rows[0]))

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """Kept are the input, the means and the scales."""
        gamma, beta = own or (None, None)
        x = _turned(x)
        y, mean, scale = aten.native_group_norm(x, gamma, beta, *_sizes(x), self.groups, self.eps)
        return y, (x, mean, scale)

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """All three gradients by torch."""
        x, mean, scale = kept
        gamma = own[0] if self.trains else None
        # The input's is always asked for: without it torch crashes.
        asked = (True, self.trains, self.trains)
        dx: Tensor
        dx, *parameters = aten.native_group_norm_backward(
            _turned(dy), x, mean, scale, gamma, *_sizes(x), self.groups, asked
        )
        if grads is not None:
            for place, gradient in zip(grads, parameters, strict=True):
                place.copy_(gradient)
        return dx


def _turned(x: Tensor) -> Tensor:
    """Images with the channels last. They nearly always are; torch's normalization believes it unseen of a gradient."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Samples, channels, positions."""
    return x.shape[0], x.shape[1], x.shape[2:].numel()


class Flatten(Fixed):
    """[B, C, H, W] to [B, CHW], in the order in which torch flattens an image."""

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The images as vectors; vectors stay as they are."""
        return x.flatten(1), x.shape

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """The vectors as images."""
        return _turned(dy.view(kept))


def _arranged(inputs: Tensor) -> Tensor:
    """The inputs of the one node, its channels last; a copy in any case."""
    return inputs[0].clone(memory_format=torch.channels_last if inputs.dim() == 5 else torch.contiguous_format)


CHANNELS_LAST = Arrangement(
    convolution=Convolution,
    linear=Linear,
    bias=Bias,
    max_pool=MaxPool,
    mean_pool=MeanPool,
    global_mean=GlobalMean,
    group_norm=GroupNorm,
    flatten=Flatten,
    relu=ReLU,
    arranged=_arranged,
    outputs=lambda x: x.t()[None],
    gradient=lambda dy: dy[0].t().contiguous(),
    evaluation=Pass(models=1, samples=500),
)
"""For one node at a time."""
