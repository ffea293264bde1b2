"""The layers of a chain, for a group of nodes with small batches.

The batch is the **last** axis: images are [G, H, C, W, B] and vectors [G, F, B] for G nodes with B samples each. A
row's pixels of all samples are then adjacent in memory, so that a convolution is a few products of plain matrices and a
pooling one call of torch, however small the batch.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.engine.gradients.recognition import Pair, Windows
from gossamer.engine.node_models import Slot


def batch_last(inputs: Tensor) -> Tensor:
    """[G, B, C, H, W] to [G, H, C, W, B], and [G, B, F] to [G, F, B]; a copy in any case."""
    moved = inputs.permute(0, 3, 2, 4, 1) if inputs.dim() == 5 else inputs.transpose(1, 2)
    return moved.clone(memory_format=torch.contiguous_format)


class Layer(Protocol):
    """One layer of G nodes, each with its own parameters.

    It may work in place on what it is given, the output of the layer before it or the gradient from the one behind it:
    only a ReLU keeps its own output, and no layer its own gradient.
    """

    trains: bool
    """Whether it has parameters."""

    def views(self, rows: Tensor) -> Any:
        """The layer's parameters, or their gradients, as views into `rows` [G, d]: `own` and `grads` below."""
        ...

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """The output for the parameters `own`, and what `backward` needs."""
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
    """y = max(x, 0), in place."""

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


# Measured: from this many output channels on, the product that gives the transposed weight gradient is faster.
TRANSPOSED_FROM = 16


class Convolution:
    """y = W * x with any kernel, stride, and zero padding less than the kernel; the bias is a layer of its own.

    The image is unfolded along its width only: `unfolded` [G, H, kw, C, n] holds, for every row, the kw shifted copies
    of it, n = W' B numbers each. The kh consecutive rows that a row of the output looks at are then one plain matrix
    [kh kw C, n] where they lie, and the output row is the product [O, kh kw C] @ [kh kw C, n] with the weights as they
    are stored. So the memory, and the copying, is kh times less than for the usual unfolding along both axes. One call
    makes the same output row of all nodes, so the rows of the output are outermost in memory: [H', G, O, n].
    """

    trains = True

    def __init__(self, weight: Slot, stride: tuple[int, int], padding: tuple[int, int]) -> None:
        self.weight = weight
        self.stride = stride
        self.padding = padding

    def views(self, rows: Tensor) -> Tensor:
        """The weights [G, O, kh kw C] as they are stored: channels last."""
        start, end = self.weight.start, self.weight.start + self.weight.size
        return rows[:, start:end].view(len(rows), self.weight.shape[0], -1)

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """W * x for every node and sample."""
        unpadded = x.shape
        tall, wide = self.padding
        if tall or wide:
            x = functional.pad(x, (0, 0, wide, wide, 0, 0, tall, tall))
        groups, height, channels, width, batch = x.shape
        out, _, tall, wide = self.weight.shape
        high = (height - tall) // self.stride[0] + 1
        broad = (width - wide) // self.stride[1] + 1
        node, row, channel, column, sample = x.stride()
        unfolded = x.as_strided(
            (groups, height, wide, channels, broad, batch),
            (node, row, column, channel, self.stride[1] * column, sample),
        ).contiguous()
        y = x.new_empty(high, groups, out, broad * batch)
        for seen, result in zip(self._seen(unfolded, high), y, strict=True):
            torch.bmm(own, seen, out=result)
        return y.view(high, groups, out, broad, batch).transpose(0, 1), (unfolded, unpadded)

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor | None:
        """dW = the sum over output rows of dy x^T; dx = the convolution of dy with the flipped kernel."""
        unfolded, shape = kept
        dy = dy.flatten(3)
        seen = self._seen(unfolded, dy.shape[1])
        if dy.shape[2] < TRANSPOSED_FROM:
            gradient = _sum_of_products(dy.transpose(0, 1), seen.transpose(2, 3))
        else:
            gradient = _sum_of_products(seen, dy.permute(1, 0, 3, 2)).transpose(1, 2)
        grads.copy_(gradient)
        return self._input_gradient(dy, shape, own) if wanted else None

    def _input_gradient(self, dy: Tensor, shape: torch.Size, own: Tensor) -> Tensor:
        groups, height, channels, width, batch = shape
        out, _, tall, wide = self.weight.shape
        length = dy.shape[3]
        made = self._side_by_side(dy)
        flipped = own.view(groups, out, tall, wide, channels).flip(2).permute(0, 3, 4, 2, 1)
        flipped = flipped.reshape(groups, wide * channels, tall * out)
        unfolded = dy.new_empty(height, groups, wide * channels, length)
        for row, result in enumerate(unfolded):
            # The output rows that this row of the image contributed to: consecutive ones, again one plain matrix.
            earliest = row + self.padding[0] - tall + 1
            first, end = max(earliest, 0), min(earliest + tall, made.shape[1])
            if first < end:
                weight = flipped[:, :, (first - earliest) * out : (end - earliest) * out]
                torch.bmm(weight, made[:, first:end].flatten(1, 2), out=result)
            else:
                result.zero_()
        step, padding = self.stride[1], self.padding[1]
        reach = step * (length // batch - 1) + 1
        dx = dy.new_zeros(height, groups, channels, width + 2 * padding, batch)
        for shift, part in enumerate(unfolded.view(height, groups, wide, channels, -1, batch).unbind(2)):
            dx[:, :, :, shift : shift + reach : step].add_(part)
        return dx[:, :, :, padding : padding + width].contiguous().transpose(0, 1)

    def _side_by_side(self, dy: Tensor) -> Tensor:
        """The output rows of each node one after the other in memory, as if the stride were 1: zeros between them."""
        stride = self.stride[0]
        if stride == 1:
            return dy.contiguous()
        groups, high, out, length = dy.shape
        spread = dy.new_zeros(groups, stride * (high - 1) + 1, out, length)
        spread[:, ::stride] = dy
        return spread

    def _seen(self, unfolded: Tensor, high: int) -> Tensor:
        """What each output row looks at, [H', G, kh kw C, n]: overlapping views, no copy."""
        groups, _, wide, channels, broad, batch = unfolded.shape
        node, row = unfolded.stride()[:2]
        length = broad * batch
        return unfolded.as_strided(
            (high, groups, self.weight.shape[2] * wide * channels, length), (self.stride[0] * row, node, length, 1)
        )


def _sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """The sum of a[h] b[h] over h, for stacks of matrices a[h] and b[h]."""
    pairs = zip(a, b, strict=True)
    result = torch.bmm(*next(pairs))
    for pair in pairs:
        result.baddbmm_(*pair)
    return result


class MaxPool(Fixed):
    """The largest pixel of each window; of equal ones the first.

    To torch, all images together are one volume of H x (G C) x W places with B channels, and channels are what it pools
    side by side: a window of kh x 1 x kw places pools every image of every node in one call, however small the batch.
    """

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
    """Height and width, and between them what applies along the axis of nodes and channels."""
    return [pair[0], between, pair[1]]


def _volume(x: Tensor) -> Tensor:
    """[G, H, C, W, B] as [1, B, H, G C, W]; no copy if the rows are outermost in memory, as after a convolution."""
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


class GroupNorm:
    """y = gamma z + beta with z = (x - mean) scale, scale = 1 / sqrt(var + eps), per sample and group of channels."""

    def __init__(self, groups: int, eps: float, affine: tuple[Slot, Slot] | None) -> None:
        self.groups = groups
        self.eps = eps
        self.affine = affine
        self.trains = affine is not None

    def views(self, rows: Tensor) -> tuple[Tensor, ...] | None:
        """Gamma and beta, [G, 1, groups, C / groups, 1, 1]."""
        if self.affine is None:
            return None
        return tuple(slot.view(rows).view(len(rows), 1, self.groups, -1, 1, 1) for slot in self.affine)

    def forward(self, x: Tensor, own: Any) -> tuple[Tensor, Any]:
        """Mean and variance in two passes, then the scaling."""
        parts = self._parts(x)
        centred = parts - _like_row(_over_group(_over_height(parts)).div_(_count(parts)), parts)
        scale = _over_group(_over_height(centred * centred)).div_(_count(parts)).add_(self.eps).rsqrt_()
        if own is None:
            y = centred * _like_row(scale, parts)
        else:
            gamma, beta = own
            y = torch.addcmul(_like_row(beta, parts), centred, _like_row(scale * gamma, parts))
        return y.view(x.shape), (centred, scale)

    def backward(self, dy: Tensor, kept: Any, own: Any, grads: Any, wanted: bool) -> Tensor:
        """dx = scale (dz - mean(dz) - z mean(dz z)) with dz = gamma dy."""
        centred: Tensor
        scale: Tensor
        centred, scale = kept
        parts = self._parts(dy)
        # Summed over the height once, for the parameters' gradients as well as for the means.
        dz, dz_z = _over_height(parts), _over_height(parts * centred).mul_(scale)
        factor = scale
        if own is not None:
            for gradient, terms in zip(grads, (dz_z, dz), strict=True):
                gradient.copy_(terms.sum((4, 5), keepdim=True))
            gamma = own[0]
            dz.mul_(gamma)
            dz_z.mul_(gamma)
            factor = scale * gamma
        mean = scale / -_count(parts)
        means = _like_row(_over_group(dz).mul_(mean), parts), _like_row(_over_group(dz_z).mul_(mean * scale), parts)
        away = torch.addcmul(means[0], centred, means[1])
        return torch.addcmul(away, parts, _like_row(factor, parts), out=away).view(dy.shape)

    def _parts(self, x: Tensor) -> Tensor:
        """[G, H, groups, C / groups, W, B]; a vector is an image of one pixel."""
        if x.dim() == 3:
            x = x[:, None, :, None]
        nodes, height, _, width, batch = x.shape
        return x.view(nodes, height, self.groups, -1, width, batch)


def _count(parts: Tensor) -> int:
    """How many numbers a mean runs over."""
    return parts.shape[1] * parts.shape[3] * parts.shape[4]


def _like_row(value: Tensor, parts: Tensor) -> Tensor:
    """A copy for every pixel of one row of the image: operations with it then run along whole rows of memory."""
    return value.expand(-1, 1, *parts.shape[2:]).contiguous()


def _over_height(parts: Tensor) -> Tensor:
    # First over the outer axis alone: a sum of long vectors, several times faster than all axes at once.
    return parts.sum(1, keepdim=True)


def _over_group(parts: Tensor) -> Tensor:
    """Sums over a group's channels and the width, [G, 1, groups, 1, 1, B]."""
    return parts.sum((3, 4), keepdim=True)


LAYERS: dict[str, Callable[..., Layer]] = {
    "convolution": Convolution,
    "linear": Linear,
    "bias": Bias,
    "max_pool": MaxPool,
    "mean_pool": MeanPool,
    "global_mean": GlobalMean,
    "group_norm": GroupNorm,
    "flatten": Flatten,
    "relu": ReLU,
}
"""By the names that `recognition` gives them."""
