"""Convolution of G nodes at once, each with its own weights."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.engine.node_models import Slot

# Measured: from this many output channels on, the product that gives the transposed weight gradient is faster.
TRANSPOSED_FROM = 16


class Convolution:
    """y = W * x with any kernel, stride, and zero padding less than the kernel; the bias is a layer of its own.

    The image is unfolded along its width only: `unfolded` [G, H, kw, C, n] holds, for every row, the kw shifted copies
    of it, n = W' B numbers each. The kh consecutive rows that a row of the output looks at are then one plain matrix
    [kh kw C, n] where they lie, and the output row is the product [O, kh kw C] @ [kh kw C, n] with the weights as they
    are stored. So the memory, and the copying, is kh times less than for the usual unfolding along both axes. One call
    makes the same output row of all nodes, so the rows of the output lie outermost in memory: [H', G, O, n].
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
        """dW = the sum over output rows of dy x^T; dx = the convolution of dy with the kernel turned round."""
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
        turned = own.view(groups, out, tall, wide, channels).flip(2).permute(0, 3, 4, 2, 1)
        turned = turned.reshape(groups, wide * channels, tall * out)
        unfolded = dy.new_empty(height, groups, wide * channels, length)
        for row, result in enumerate(unfolded):
            # The output rows that this row of the image contributed to: consecutive ones, again one plain matrix.
            earliest = row + self.padding[0] - tall + 1
            first, end = max(earliest, 0), min(earliest + tall, made.shape[1])
            if first < end:
                weight = turned[:, :, (first - earliest) * out : (end - earliest) * out]
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
