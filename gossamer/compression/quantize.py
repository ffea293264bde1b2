"""Quantization: every number becomes the nearest of a few levels, whose distance fits its block of numbers."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
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
    From 3 bits on one level is 0: a number that is 0 stays 0, and the largest number of a block is met whatever the
    others are.

    One bit is the sign times the mean size. Of a block in which one number is much larger than all others that keeps
    hardly anything. So these blocks are rotated first, otherwise in every turn: after that, any block looks like normal
    numbers.

    On the wire: the codes k, `bits` each, then a float32 per block; of one bit, the number of the turn as well.

    >>> Quantize(bits=4).bytes(1024), Quantize(bits=1).bytes(1024)
    (528, 152)
    """

    name = "quantize"
    spreads = True

    bits: int = 4
    block: int = 256

    def __post_init__(self) -> None:
        if not 1 <= whole_number(self.bits, "the bits of quantize", least=None) <= 16:
            raise InputError(
                f"Quantize takes 1 to 16 bits per number, not {self.bits}; to send all of them, leave out the "
                f"compressor."
            )
        if whole_number(self.block, "the block of quantize", least=1) & (self.block - 1) and self.rotates:
            raise InputError(
                f"With 1 bit, quantize rotates its blocks, which must be a power of 2 long, not {self.block}."
            )

    @property
    def levels(self) -> int:
        """How many values a number of a block can take."""
        return (1 << self.bits) - (self.bits > 2)

    @property
    def rotates(self) -> bool:
        """Whether blocks are rotated before they are quantized."""
        return self.bits == 1

    @property
    def _middle(self) -> float:
        return (self.levels - 1) / 2

    def compress(self, vector: Tensor, turn: int = 0) -> Compressed:
        """Codes [..., blocks, block] and scales [..., blocks]; of one bit also the turn [..., 1]."""
        dim = vector.shape[-1]
        block = self._block(dim)
        rest = dim % block
        blocks = (pad(vector, (0, block - rest)) if rest else vector).reshape(*vector.shape[:-1], -1, block)
        if self.rotates:
            return self._signs(rotated(blocks, turn), turn, vector)
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

    def _signs(self, blocks: Tensor, turn: int, vector: Tensor) -> Compressed:
        """The same for one bit, of blocks that are rotated: signs and the mean size are what fits best."""
        scale = blocks.abs().sum(-1).div_(blocks.shape[-1] / 2).float()
        codes = blocks >= 0
        turns = torch.full((*vector.shape[:-1], 1), turn, dtype=torch.int64, device=vector.device)
        numbers = self._rotated_back(codes.to(vector.dtype), scale, turn).flatten(-2)
        return Compressed(numbers[..., : vector.shape[-1]].contiguous(), self, (codes, scale, turns))

    def _rotated_back(self, codes: Tensor, scale: Tensor, turn: int) -> Tensor:
        """(code - 1/2) * scale in the blocks before their rotation."""
        return rotated(codes.sub_(self._middle), turn, back=True).mul_(scale.to(codes.dtype).unsqueeze(-1))

    def encode(self, compressed: Compressed) -> Tensor:
        """Codes of `bits` bits, then the scales and the turn."""
        codes, *others = compressed.parts
        dim = compressed.values.shape[-1]
        codes = codes.flatten(-2)[..., : self._groups(dim) * _GROUP]
        if codes.shape[-1] % _GROUP:  # a block is no multiple of a group
            codes = pad(codes, (0, -codes.shape[-1] % _GROUP))
        if self.bits <= 8:
            planes = [packed(codes.to(torch.uint8), self.bits)]
        else:
            whole = codes.to(torch.int32)
            planes = [(whole & 255).to(torch.uint8), packed((whole >> 8).to(torch.uint8), self.bits - 8)]
        return torch.cat([*planes, *(part.contiguous().view(torch.uint8) for part in others)], dim=-1)

    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """(code - middle) * scale, rotated back."""
        dim = like.shape[-1]
        block, groups = self._block(dim), self._groups(dim)
        low = min(self.bits, 8)
        codes = unpacked(wire[: groups * low], low)
        if self.rotates:
            scale, turn = wire[groups * self.bits : -8].clone().view(torch.float32), wire[-8:].clone().view(torch.int64)
            blocks = codes[: len(scale) * block].to(like.dtype).view(-1, block)
            return self._rotated_back(blocks, scale, int(turn)).view(-1)[:dim]
        level = codes[:dim].to(like.dtype)
        if self.bits > 8:
            level.add_(unpacked(wire[groups * 8 : groups * self.bits], self.bits - 8)[:dim], alpha=256)
        level.sub_(self._middle)
        scale = wire[groups * self.bits :].clone().view(torch.float32).to(like.dtype)
        whole = dim // block  # blocks
        level[: whole * block].view(-1, block).mul_(scale[:whole].unsqueeze(-1))
        level[whole * block :].mul_(scale[whole:])
        return level

    def bytes(self, dim: int, width: int = 4) -> int:
        """bits/8 for each number, 4 for each block, 8 for the turn of a rotation."""
        return self._groups(dim) * self.bits + 4 * _ceil(dim, self._block(dim)) + 8 * self.rotates

    def contraction(self, dim: int) -> float:
        """1 - the mean square error of the levels on normal numbers."""
        if self.bits in _STEPS:
            return 1 - _ERRORS[self.bits]
        largest = math.sqrt(2 * math.log(min(self.block, max(dim, 2))))
        return 1 - (largest / self._middle) ** 2 / 12

    def _block(self, dim: int) -> int:
        """The numbers of a block in a vector of `dim`."""
        return max(1, min(self.block, 1 << (dim - 1).bit_length() if self.rotates else dim))

    def _groups(self, dim: int) -> int:
        """How many groups of codes travel: those of whole blocks where blocks are rotated."""
        block = self._block(dim)
        return _ceil(_ceil(dim, block) * block if self.rotates else dim, _GROUP)

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


def rotated(blocks: Tensor, turn: int, back: bool = False) -> Tensor:
    """Every block [..., a power of 2], rotated, times the root of its length; or back, over that root.

    A block is a matrix whose rows and columns get random signs and go through a Hadamard transform. All that is summed
    on the way back are multiples of a power of 2, so that the sums are exact in any order.

    >>> there = rotated(torch.tensor([3.0, 0.0, 0.0, 0.0]), turn=1)
    >>> there.abs(), rotated(there, turn=1, back=True)
    (tensor([3., 3., 3., 3.]), tensor([3., 0., 0., 0.]))
    """
    block = blocks.shape[-1]
    rows = 1 << (block.bit_length() // 2)
    left, right = _rotation(turn, rows, block // rows, blocks.dtype, blocks.device, back)
    matrix = blocks.reshape(*blocks.shape[:-1], rows, block // rows)
    return (left @ matrix @ right).view(blocks.shape)


@lru_cache(maxsize=8)  # in a round, a node asks for the same one for each vector and each neighbour
def _rotation(
    turn: int, rows: int, columns: int, dtype: torch.dtype, device: torch.device, back: bool
) -> tuple[Tensor, Tensor]:
    """What blocks are multiplied with from the left and from the right: other signs in every turn."""
    # A hash of turn and position (Steele, Lea and Flood, 2014) in wrapping integers: the same on every machine.
    count = rows + columns
    mixed = np.arange(turn * count, turn * count + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    signs = torch.from_numpy(1 - 2 * (mixed >> np.uint64(63)).astype(np.int64)).to(device, dtype)
    left, right = signs[:rows], signs[rows:]
    if back:
        left, right = left / rows, right / columns
        return left.unsqueeze(-1) * _hadamard(rows, dtype, device), _hadamard(columns, dtype, device) * right
    return _hadamard(rows, dtype, device) * left, right.unsqueeze(-1) * _hadamard(columns, dtype, device)


@lru_cache
def _hadamard(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = torch.ones(1, 1, dtype=dtype, device=device)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix
