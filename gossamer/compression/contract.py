"""What a compressor is: the numbers that it keeps of a vector, how they travel, and the registry of all compressors.

A compressed vector is a vector again: `Compressed.values` are the numbers that every receiver decodes, to the bit. So a
method adds the same numbers at both ends of a link, and what was left out is sent later.
"""

import dataclasses
from abc import ABC, abstractmethod
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from gossamer._common import checks
from gossamer.errors import unknown


@dataclasses.dataclass(frozen=True, eq=False)
class Compressed:
    """A compressed vector: a row [d] or a stack of rows [N, d], each compressed on its own."""

    values: Tensor
    """The numbers that arrive, in the shape and type of the vector that was compressed; not to be written to."""
    compressor: "Compressor"
    parts: tuple[Tensor, ...]
    """What `Compressor.encode` makes the bytes of."""

    def wire(self) -> Tensor:
        """The bytes that travel, one row of uint8 for each row."""
        return self.compressor.encode(self)


class Compressor(ABC):
    """A rule for leaving out most of a vector's bits. Subclasses are dataclasses of plain numbers with a `name`.

    >>> get("top-k:share=0.5").compress(torch.tensor([1.0, -3.0, 0.5, 2.0])).values
    tensor([ 0., -3.,  0.,  2.])
    """

    name: ClassVar[str]
    """How specs call it, as in "quantize:bits=4"."""
    spreads: ClassVar[bool] = False
    """Whether what it loses is spread over all numbers of a block, instead of some that are left out altogether."""

    _registry: ClassVar[dict[str, type["Compressor"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Compressor._registry[cls.name] = cls

    @abstractmethod
    def compress(self, vector: Tensor, turn: int = 0) -> Compressed:
        """What is kept of each row. `turn` counts the calls, alike on all nodes: random choices depend on it."""

    @abstractmethod
    def encode(self, compressed: Compressed) -> Tensor:
        """The bytes of each row, a uint8 tensor [..., bytes]."""

    @abstractmethod
    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """The numbers of one row out of its bytes, in the shape and type of `like` [d]: the sender's to the bit."""

    @abstractmethod
    def bytes(self, dim: int, width: int = 4) -> int:
        """The length of an encoded vector of `dim` numbers of `width` bytes each."""

    @abstractmethod
    def contraction(self, dim: int) -> float:
        """delta in E|v - C(v)|^2 = (1 - delta) |v|^2, for the vectors of `dim` numbers that it usually gets."""

    def __str__(self) -> str:
        """The spec that `get` turns into an equal compressor."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = [f"{f.name}={getattr(self, f.name)}" for f in fields if getattr(self, f.name) is not None]
        return f"{self.name}:{','.join(shown)}" if shown else self.name


@dataclasses.dataclass(frozen=True)
class Identity(Compressor):
    """Leaves out nothing: for comparison.

    >>> Identity().bytes(1000)
    4000
    """

    name = "identity"

    def compress(self, vector: Tensor, turn: int = 0) -> Compressed:
        """The vector itself."""
        kept = vector.clone()
        return Compressed(kept, self, (kept,))

    def encode(self, compressed: Compressed) -> Tensor:
        """The numbers as they are."""
        return compressed.parts[0].contiguous().view(torch.uint8)

    def decode(self, wire: Tensor, like: Tensor) -> Tensor:
        """The numbers as they are."""
        return wire.clone().view(like.dtype)

    def bytes(self, dim: int, width: int = 4) -> int:
        """All of them."""
        return dim * width

    def contraction(self, dim: int) -> float:
        """1: nothing is lost."""
        return 1.0


def names() -> list[str]:
    """The names of all compressors.

    >>> names()
    ['identity', 'quantize', 'top-k', 'random-k']
    """
    return list(Compressor._registry)


@cache
def get(spec: "str | Compressor") -> Compressor:
    """The compressor that `spec` describes: a name, with parameters after a colon.

    Inside a longer spec, where a comma would end the compressor, its parameters are joined by a plus sign.

    >>> get("quantize:bits=2+block=64")
    Quantize(bits=2, block=64)
    """
    if isinstance(spec, Compressor):
        return spec
    name, rest = checks.split(str(spec))
    found = Compressor._registry.get(checks.normalized(name))
    if found is None:
        raise unknown("compressor", name, names())
    return found(**checks.parameters("compressor", found.name, found, rest.replace("+", ",")))
