"""Numbers of a few bits, packed into bytes without gaps: 8 of b bits in b bytes, the first in the lowest bits.

Numbers that take a byte each move together in words of 64 bits, all words at once: first pairs of numbers, then pairs
of pairs, until they fill whole bytes.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

NUMPYS_DEVICE = "cpu"
"""Where numpy takes part: some of its functions are many times as fast as torch's."""


def packed(codes: Tensor, bits: int) -> Tensor:
    """Codes of 1 to 8 bits, a uint8 tensor whose last dimension is a multiple of 8, as bytes.

    >>> packed(torch.tensor([1, 2, 3, 0, 0, 0, 0, 0], dtype=torch.uint8), bits=4).tolist()
    [33, 3, 0, 0]
    """
    if bits == 1 and codes.device.type == NUMPYS_DEVICE:
        return torch.from_numpy(np.packbits(codes.numpy(), axis=-1, bitorder="little"))
    words, used, width = codes.contiguous().view(torch.int64), bits, 8
    while used % 8:
        low = _low_bits(used, 2 * width)
        words = (words & low).bitwise_or_((words >> (width - used)).bitwise_and_(low << used))
        used, width = 2 * used, 2 * width
    parts = words.view(torch.uint8).view(*codes.shape[:-1], -1, width // 8)
    return parts[..., : used // 8].flatten(-2)


def unpacked(wire: Tensor, bits: int) -> Tensor:
    """The codes of a row of bytes, as uint8.

    >>> unpacked(torch.tensor([33, 3, 0, 0], dtype=torch.uint8), bits=4).tolist()
    [1, 2, 3, 0, 0, 0, 0, 0]
    """
    if bits == 1 and wire.device.type == NUMPYS_DEVICE:
        return torch.from_numpy(np.unpackbits(wire.numpy(), bitorder="little"))
    used, width = bits, 8
    while used % 8:
        used, width = 2 * used, 2 * width
    words = pad(wire.view(-1, used // 8), (0, (width - used) // 8)).view(-1).view(torch.int64)
    while width > 8:
        used, width = used // 2, width // 2
        low = _low_bits(used, 2 * width)
        words = (words & low).bitwise_or_((words << (width - used)).bitwise_and_(low << width))
    return words.view(torch.uint8)


def _low_bits(used: int, width: int) -> int:
    """A word of 64 bits in which the lowest `used` of every `width` bits are set."""
    return sum(((1 << used) - 1) << first for first in range(0, 64, width))
