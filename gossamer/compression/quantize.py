"""Quantization: every number becomes the nearest of a few levels, whose distance fits its block of numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from gossamer._common.checks import whole_number
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
        blocks = self._blocks(vector)
        step = self._step(blocks)
        codes = (
            blocks.div(step.unsqueeze(-1)).nan_to_num_(nan=0.0).add_(self._middle).round_().clamp_(0, self.levels - 1)
        )
        level = codes - self._middle
        rest = vector.shape[-1] % self.block
        if rest:
            level[..., -1, rest:] = 0  # beyond the end of the vector
        power = level.square().sum(-1)
        scale = (blocks * level).sum(-1).div_(power.clamp(min=0.25)).float()
        return Compressed(self._numbers(codes, scale, vector), self, (codes, scale))

    def encode(self, compressed: Compressed) -> Tensor:
        """Codes of `bits` bits, then the scales."""
        codes, scale = compressed.parts
        dim = compressed.values.shape[-1]
        codes = codes.flatten(-2)[..., : _ceil(dim, _GROUP) * _GROUP]
        codes = pad(codes, (0, -codes.shape[-1] % _GROUP)).to(torch.int32)
        planes = [_packed(codes & 255, min(self.bits, 8))]
        if self.bits > 8:
            planes.append(_packed(codes >> 8, self.bits - 8))
        return torch.cat([*planes, scale.contiguous().view(torch.uint8)], dim=-1)

    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """(code - middle) * scale."""
        dim = like.shape[-1]
        groups = _ceil(dim, _GROUP)
        low = min(self.bits, 8)
        codes = _unpacked(wire[: groups * low], low, groups)
        if self.bits > 8:
            codes = codes + 256 * _unpacked(wire[groups * 8 : groups * self.bits], self.bits - 8, groups)
        scale = wire[groups * self.bits :].clone().view(torch.float32)
        size = len(scale) * self.block
        codes = pad(codes[:size], (0, size - min(size, len(codes)))).view(-1, self.block).to(like.dtype)
        return self._numbers(codes, scale, like)

    def bytes(self, dim: int, width: int = 4) -> int:
        """bits/8 for each number, 4 for each block."""
        return _ceil(dim, _GROUP) * self.bits + 4 * _ceil(dim, self.block)

    def contraction(self, dim: int) -> float:
        """1 - the mean square error of the levels on normal numbers."""
        if self.bits in _STEPS:
            return 1 - _ERRORS[self.bits]
        largest = math.sqrt(2 * math.log(min(self.block, max(dim, 2))))
        return 1 - (largest / self._middle) ** 2 / 12

    def _step(self, blocks: Tensor) -> Tensor:
        """The distance of levels in each block, to find the nearest one."""
        if self.bits in _STEPS:
            norms: Tensor = torch.linalg.vector_norm(blocks, dim=-1)
            return norms.mul_(_STEPS[self.bits] / math.sqrt(self.block))
        return blocks.abs().amax(-1).div_(self._middle)

    def _blocks(self, vector: Tensor) -> Tensor:
        dim = vector.shape[-1]
        whole = pad(vector, (0, -dim % self.block)) if dim % self.block else vector
        return whole.reshape(*vector.shape[:-1], -1, self.block)

    def _numbers(self, codes: Tensor, scale: Tensor, like: Tensor) -> Tensor:
        """What both ends make of codes (as `like`'s type) and scales."""
        numbers = (codes - self._middle).mul_(scale.to(like.dtype).unsqueeze(-1)).flatten(-2)
        return numbers[..., : like.shape[-1]].contiguous()


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _packed(codes: Tensor, bits: int) -> Tensor:
    """Codes of `bits` <= 8 bits, 8 codes in `bits` bytes, the first code in the lowest bits."""
    if bits == 8:
        return codes.to(torch.uint8)
    grouped = codes.view(*codes.shape[:-1], -1, _GROUP).to(torch.int64)
    words = (grouped << torch.arange(0, _GROUP * bits, bits, device=codes.device)).sum(-1, keepdim=True)
    return words.view(torch.uint8)[..., :bits].flatten(-2)


def _unpacked(wire: Tensor, bits: int, groups: int) -> Tensor:
    if bits == 8:
        return wire.to(torch.int64)
    words = torch.zeros(groups, 8, dtype=torch.uint8, device=wire.device)
    words[:, :bits] = wire.view(groups, bits)
    codes = words.view(torch.int64) >> torch.arange(0, _GROUP * bits, bits, device=wire.device)
    return codes.bitwise_and_(2**bits - 1).flatten()
