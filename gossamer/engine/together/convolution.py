"""Convolution of G nodes at once, each with its own weights."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.engine.flat import Slot

# Above this many numbers, the weight gradients of all output rows are not held side by side but added up one by one.
SIDE_BY_SIDE = 1 << 18


class Convolution:
    """y = W * x with any kernel, stride, and zero padding less than the kernel; the bias is a layer of its own.

    The image is unfolded along its width only: `unfolded` [G, H, kw, C, n] holds, for every row, the kw shifted copies
    of it, n = W' B numbers each. The kh consecutive rows that a row of the output looks at are then one plain matrix
    [kh kw C, n] where they lie, and the output row is the product [O, kh kw C] @ [kh kw C, n] with the weights as they
    are stored. So the memory, and the copying, is kh times less than for the usual unfolding along both axes.
    """

    trains = True

    def __init__(self, weight: Slot, stride: tuple[int, int], padding: tuple[int, int]) -> None:
        self.weight = weight
        self.stride = stride
        self.padding = padding

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Any]:
        """W * x for every node and sample."""
        unpadded = x.shape
        tall, wide = self.padding
        if tall or wide:
            x = functional.pad(x, (0, 0, wide, wide, 0, 0, tall, tall))
        groups, height, channels, width, batch = x.shape
        out, _, tall, wide = self.weight.shape
        high = (height - tall) // self.stride[0] + 1
        broad = (width - wide) // self.stride[1] + 1
        node, row, channel, column, _ = x.stride()
        unfolded = x.as_strided(
            (groups, height, wide, channels, broad, batch), (node, row, column, channel, self.stride[1] * column, 1)
        ).contiguous()
        y = x.new_empty(groups, high, out, broad, batch)
        weight = self._matrix(rows)[:, None].expand(-1, high, -1, -1)
        for w, seen, result in zip(weight, self._seen(unfolded, high), y.flatten(3), strict=True):
            torch.bmm(w, seen, out=result)
        return y, (unfolded, unpadded)

    def backward(self, dy: Tensor, kept: Any, rows: Tensor, grads: Tensor, wanted: bool) -> Tensor | None:
        """dW = the sum over output rows of dy x^T; dx = the convolution of dy with the kernel turned round."""
        unfolded, shape = kept
        high = dy.shape[1]
        dy = dy.flatten(3)
        seen = self._seen(unfolded, high).transpose(2, 3)
        for d, x, result in zip(dy, seen, self._matrix(grads), strict=True):
            if high * self.weight.size <= SIDE_BY_SIDE:
                torch.sum(torch.bmm(d, x), 0, out=result)
            else:
                torch.mm(d[0], x[0], out=result)
                for i in range(1, high):
                    result.addmm_(d[i], x[i])
        return self._input_gradient(dy, shape, rows) if wanted else None

    def _input_gradient(self, dy: Tensor, shape: torch.Size, rows: Tensor) -> Tensor:
        groups, height, channels, width, batch = shape
        out, _, tall, wide = self.weight.shape
        high, length = dy.shape[1], dy.shape[3]
        # Output rows at their places in the image, zeros around and between them: what an image row contributed to is
        # among `tall` consecutive ones, which are again one plain matrix.
        spread = dy.new_zeros(groups, height + tall - 1, out, length)
        first = tall - 1 - self.padding[0]
        spread[:, first : first + self.stride[0] * (high - 1) + 1 : self.stride[0]].copy_(dy)
        seen = spread.as_strided((groups, height, tall * out, length), (spread.stride(0), spread.stride(1), length, 1))
        turned = self._matrix(rows).view(groups, out, tall, wide, channels).flip(2).permute(0, 3, 4, 2, 1)
        turned = turned.reshape(groups, 1, wide * channels, tall * out).expand(-1, height, -1, -1)
        unfolded = dy.new_empty(groups, height, wide * channels, length)
        for w, d, result in zip(turned, seen, unfolded, strict=True):
            torch.bmm(w, d, out=result)
        step, padding = self.stride[1], self.padding[1]
        reach = step * (length // batch - 1) + 1
        dx = dy.new_zeros(groups, height, channels, width + 2 * padding, batch)
        for shift, part in enumerate(unfolded.view(groups, height, wide, channels, -1, batch).unbind(2)):
            dx[:, :, :, shift : shift + reach : step].add_(part)
        return dx[:, :, :, padding : padding + width].contiguous()

    def _matrix(self, rows: Tensor) -> Tensor:
        """The weights [G, O, kh kw C] as they are stored: channels last."""
        start, end = self.weight.start, self.weight.start + self.weight.size
        return rows[:, start:end].view(len(rows), self.weight.shape[0], -1)

    def _seen(self, unfolded: Tensor, high: int) -> Tensor:
        """What each output row looks at, [G, H', kh kw C, n]: overlapping views, no copy."""
        groups, _, wide, channels, broad, batch = unfolded.shape
        node, row = unfolded.stride()[:2]
        length = broad * batch
        return unfolded.as_strided(
            (groups, high, self.weight.shape[2] * wide * channels, length),
            (node, self.stride[0] * row, length, 1),
        )
