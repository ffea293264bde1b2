"""Quantization: every number becomes the nearest of a few levels, whose distance fits its block of numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from gossamer._common.checks import whole_number
from gossamer.compression.bits import packed, unpacked
from gossamer.compression.contract import Compressed, Compressor
from gossamer.errors import InputError

# The distance of equidistant levels, in units of the root mean square, that has the smallest mean square error on
# normal numbers (Max, Quantizing for minimum distortion, 1960), and that error. From five bits on it is about what the
# largest of 256 numbers asks for, which cuts off nothing.
_STEPS = {1: 1.596, 2: 0.9957, 3: 0.651, 4: 0.353}
_ERRORS = {1: 0.3634, 2: 0.1188, 3: 0.0469, 4: 0.0129}
_GROUP = 8  # so many codes of b bits are b bytes


@dataclass(frozen=True)
class Quantize(Compressor):
    """`bits` per number and a scale per block: the nearest of 2^bits equidistant levels (from 3 bits on 2^bits - 1).

    q = scale (k - (levels - 1)/2),  k = 0, ..., levels - 1

    Levels are laid for the smallest error on normal numbers, then the scale is fitted to the block by least squares,
    scale = <v, l> / <l, l> with l = q/scale. So |v - q|^2 = |v|^2 - |q|^2: no block ever becomes worse than nothing.
    One bit is the sign times the mean size. From 3 bits on one level is 0, and a number that is 0 stays 0.

    On the wire: the codes k, `bits` each, then a float32 per block.

    >>> Quantize(bits=4).bytes(1024), Quantize(bits=1).compress(torch.tensor([1.0, -3.0])).values
    (528, tensor([ 2., -2.]))
    """

    name = "quantize"

    bits: int = 4
    block: int = 256

    def __post_init__(self) -> None:
        if not 1 <= whole_number(self.bits, "the bits of quantize", least=None) <= 16:
            raise InputError(
                f"Quantize takes 1 to 16 bits per number, not {self.bits}; to send all of them, leave out the "
                f"compressor."
            )
        whole_number(self.block, "the block of quantize", least=1)

    @property
    def levels(self) -> int:
        """How many values a number of a block can take."""
        return (1 << self.bits) - (self.bits > 2)

    @property
    def _middle(self) -> float:
        return (self.levels - 1) / 2

    def compress(self, vector: Tensor, turn: int = 0) -> Compressed:
        """Codes [..., blocks, block] and scales [..., blocks]."""
        dim = vector.shape[-1]
        block = self._block(dim)
        rest = dim % block
        blocks = (pad(vector, (0, block - rest)) if rest else vector).reshape(*vector.shape[:-1], -1, block)
        step = self._step(blocks, rest).clamp_(min=torch.finfo(vector.dtype).tiny)  # a block of zeros has none
        codes = blocks.div(step.unsqueeze(-1)).add_(self._middle).round_().clamp_(0, self.levels - 1)
        level = codes - self._middle
        if rest:
            level[..., -1, rest:] = 0  # beyond the end of the vector
        products = torch.mul(level, level)
        power = products.sum(-1)
        scale = torch.mul(blocks, level, out=products).sum(-1).div_(power.clamp_(min=0.25)).float()
        numbers = level.mul_(scale.to(vector.dtype).unsqueeze(-1)).flatten(-2)
        return Compressed(numbers[..., :dim].contiguous(), self, (codes, scale))

    def encode(self, compressed: Compressed) -> Tensor:
        """Codes of `bits` bits, then the scales."""
        codes, scale = compressed.parts
        dim = compressed.values.shape[-1]
        codes = codes.flatten(-2)[..., : _ceil(dim, _GROUP) * _GROUP]
        if codes.shape[-1] % _GROUP:  # a block is no multiple of a group
            codes = pad(codes, (0, -codes.shape[-1] % _GROUP))
        if self.bits <= 8:
            planes = [packed(codes.to(torch.uint8), self.bits)]
        else:
            whole = codes.to(torch.int32)
            planes = [(whole & 255).to(torch.uint8), packed((whole >> 8).to(torch.uint8), self.bits - 8)]
        return torch.cat([*planes, scale.contiguous().view(torch.uint8)], dim=-1)

    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """(code - middle) * scale."""
        dim = like.shape[-1]
        groups = _ceil(dim, _GROUP)
        low = min(self.bits, 8)
        level = unpacked(wire[: groups * low], low)[:dim].to(like.dtype)
        if self.bits > 8:
            level.add_(unpacked(wire[groups * 8 : groups * self.bits], self.bits - 8)[:dim], alpha=256)
        level.sub_(self._middle)
        scale = wire[groups * self.bits :].clone().view(torch.float32).to(like.dtype)
        block = self._block(dim)
        whole = dim // block  # blocks
        level[: whole * block].view(-1, block).mul_(scale[:whole].unsqueeze(-1))
        level[whole * block :].mul_(scale[whole:])
        return level

    def bytes(self, dim: int, width: int = 4) -> int:
        """bits/8 for each number, 4 for each block."""
        return _ceil(dim, _GROUP) * self.bits + 4 * _ceil(dim, self.block)

    def contraction(self, dim: int) -> float:
        """1 - the mean square error of the levels on normal numbers."""
        if self.bits in _STEPS:
            return 1 - _ERRORS[self.bits]
        largest = math.sqrt(2 * math.log(min(self.block, max(dim, 2))))
        return 1 - (largest / self._middle) ** 2 / 12

    def _block(self, dim: int) -> int:
        """The numbers of a block in a vector of `dim`."""
        return max(1, min(self.block, dim))

    def _step(self, blocks: Tensor, rest: int) -> Tensor:
        """The distance of levels in each block; the last block holds `rest` numbers unless that is 0."""
        if self.bits in _STEPS:
            norms: Tensor = torch.linalg.vector_norm(blocks, dim=-1)
            norms.mul_(_STEPS[self.bits] / math.sqrt(blocks.shape[-1]))
            if rest:
                norms[..., -1].mul_(math.sqrt(blocks.shape[-1] / rest))
            return norms
        return blocks.abs().amax(-1).div_(self._middle)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
