"""A few of a vector's numbers: the largest ones, or some drawn by lot."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gossamer._common.checks import is_finite_number, whole_number
from gossamer.compression import bits
from gossamer.compression.contract import Compressed, Compressor
from gossamer.errors import InputError

_RANGE = 1 << 16  # positions are counted from the beginning of their range, in two bytes


@dataclass(frozen=True)
class TopK(Compressor):
    """The `share` of the numbers that are the largest in size; all others become 0.

    On the wire: the numbers as float32, in the order of their positions; then the positions, as a bit per number of the
    vector or as two bytes per position, whichever is shorter.

    >>> TopK(share=0.1).bytes(1000), TopK(share=0.01).bytes(1000)
    (525, 64)
    """

    name = "top-k"

    share: float

    def __post_init__(self) -> None:
        _check_share("Top-k", self.share)

    def compress(self, vector: Tensor, turn: int = 0) -> Compressed:
        """Positions [..., k], ascending, and numbers [..., k]."""
        places = _largest(vector, _count(self.share, vector.shape[-1]))
        numbers = vector.gather(-1, places).float()
        return Compressed(_filled(vector, places, numbers), self, (places, numbers))

    def encode(self, compressed: Compressed) -> Tensor:
        """The numbers, then where they belong."""
        places, numbers = compressed.parts
        lead, dim = numbers.shape[:-1], compressed.values.shape[-1]
        if self._marks(dim):
            marks = numbers.new_zeros(*lead, -(-dim // 8) * 8, dtype=torch.uint8).scatter_(-1, places, 1)
            where = bits.packed(marks, bits=1)
        else:
            last = torch.arange(1, -(-dim // _RANGE) + 1, device=places.device) * _RANGE
            ends = torch.searchsorted(places, last.expand(*lead, -1).contiguous()).to(torch.int32)
            low = (places % _RANGE).to(torch.int32).to(torch.int16)
            where = torch.cat([ends.view(torch.uint8), low.view(torch.uint8)], dim=-1)
        return torch.cat([numbers.contiguous().view(torch.uint8), where], dim=-1)

    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """Every number at its place, 0 elsewhere."""
        dim = like.shape[-1]
        k = _count(self.share, dim)
        numbers, where = wire[: 4 * k].clone().view(torch.float32), wire[4 * k :]
        if self._marks(dim):
            return _filled(like, _positions(bits.unpacked(where, 1).view(torch.bool)), numbers)
        ranges = -(-dim // _RANGE)
        ends, low = where[: 4 * ranges].clone().view(torch.int32), where[4 * ranges :].clone().view(torch.int16)
        places = low.to(torch.int64) % _RANGE
        counts = ends.to(torch.int64).diff(prepend=ends.new_zeros(1, dtype=torch.int64))
        places += torch.arange(ranges, device=wire.device).repeat_interleave(counts, output_size=k) * _RANGE
        return _filled(like, places, numbers)

    def bytes(self, dim: int, width: int = 4) -> int:
        """Four for each number, and two or a bit of the vector's for its position."""
        k = _count(self.share, dim)
        return 4 * k + (-(-dim // 8) if self._marks(dim) else 2 * k + 4 * -(-dim // _RANGE))

    def contraction(self, dim: int) -> float:
        """1 - (1 - share)^3, for numbers whose sizes are spread evenly.

        They are where what was left out is added to the next vector: each number grows until it is one of the largest.
        """
        return 1 - (1 - _count(self.share, dim) / dim) ** 3

    def _marks(self, dim: int) -> bool:
        """Whether a bit per number is shorter than two bytes per position."""
        return -(-dim // 8) < 2 * _count(self.share, dim) + 4 * -(-dim // _RANGE)


@dataclass(frozen=True)
class RandomK(Compressor):
    """A `share` of the numbers, drawn again in every turn from a seed that all nodes share; all others become 0.

    On the wire: the number of the turn, from which both ends draw the positions, and the numbers as float32.

    >>> RandomK(share=0.01).bytes(1000)
    48
    """

    name = "random-k"

    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check_share("Random-k", self.share)
        whole_number(self.seed, "the seed of random-k")

    def compress(self, vector: Tensor, turn: int = 0) -> Compressed:
        """The turn, and the numbers [..., k] at the positions that belong to it."""
        places = self._places(turn, vector)
        numbers = vector.index_select(-1, places).float()
        turns = torch.full((*vector.shape[:-1], 1), turn, dtype=torch.int64, device=vector.device)
        return Compressed(_filled(vector, places.expand_as(numbers), numbers), self, (turns, numbers))

    def encode(self, compressed: Compressed) -> Tensor:
        """The turn, then the numbers."""
        turns, numbers = compressed.parts
        return torch.cat([turns.view(torch.uint8), numbers.contiguous().view(torch.uint8)], dim=-1)

    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """Every number at its place, 0 elsewhere."""
        turn = int(wire[:8].clone().view(torch.int64))
        return _filled(like, self._places(turn, like), wire[8:].clone().view(torch.float32))

    def bytes(self, dim: int, width: int = 4) -> int:
        """Four for each number, eight for the turn."""
        return 8 + 4 * _count(self.share, dim)

    def contraction(self, dim: int) -> float:
        """The share of the numbers."""
        return _count(self.share, dim) / dim

    def _places(self, turn: int, like: Tensor) -> Tensor:
        dim = like.shape[-1]
        return _drawn(self.seed, turn, dim, _count(self.share, dim)).to(like.device)


@lru_cache(maxsize=4)  # in a round, a node asks for the same ones for each vector and each neighbour
def _drawn(seed: int, turn: int, dim: int, count: int) -> Tensor:
    """The positions that belong to a turn, ascending."""
    # The generator looks at 32 bits; an odd factor sends seeds to turns that are far apart.
    generator = torch.Generator().manual_seed((seed * 0x9E3779B1 + turn) % 2**32)
    return torch.randperm(dim, generator=generator)[:count].sort().values


def _check_share(title: str, share: float) -> None:
    if not is_finite_number(share) or not 0 < share <= 1:
        raise InputError(
            f"{title} needs a share of the numbers above 0 and at most 1, but share is {share}; 0.1 keeps one in ten."
        )


def _count(share: float, dim: int) -> int:
    """How many numbers of `dim` are kept: at least one."""
    return min(dim, max(1, math.ceil(share * dim - 1e-9)))


def _largest(vector: Tensor, k: int) -> Tensor:
    """The positions [..., k] of the k largest numbers in size, ascending; NaN counts as large."""
    size, rest = vector.abs().nan_to_num_(nan=math.inf, posinf=math.inf), vector.shape[-1] - k
    if vector.device.type == bits.NUMPYS_DEVICE:
        border = torch.from_numpy(np.partition(size.numpy(), rest)[..., rest, None])
    else:
        border = size.kthvalue(rest + 1, keepdim=True).values
    kept = size >= border
    if (
        int(kept.count_nonzero()) != k * kept[..., 0].numel()
    ):  # of those that are as large as the smallest, the first are kept
        above = size > border
        kept = above | (kept & ((kept & ~above).cumsum(-1) <= k - above.sum(-1, keepdim=True)))
    return _positions(kept).view(*vector.shape[:-1], k)


def _positions(marks: Tensor) -> Tensor:
    """Where the rows are true, one row after the other."""
    if marks.device.type == bits.NUMPYS_DEVICE:
        return torch.from_numpy(np.flatnonzero(marks.numpy())) % marks.shape[-1]
    return marks.nonzero()[:, -1]


def _filled(like: Tensor, places: Tensor, numbers: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter_(-1, places, numbers.to(like.dtype))
