"""What travels between nodes: one contiguous buffer per neighbour, a header followed by all vectors.

The header lets nodes that have fallen out of step notice it and name the cause. Buffers are reused: a sent one two
messages later at the earliest, when it has left; a received one as soon as it has been read.
"""

import math
import struct
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

_LAYOUT = struct.Struct("<qqqqdqqq")
HEADER_BYTES = _LAYOUT.size
CHANGE = -1
"""Instead of the hash of the settings: the sender is about to change what it exchanges. No hash is negative."""
END = -2
"""Instead of the hash of the settings: the sender has made its last step."""
_MARK = 0x676F7373616D6572  # "gossamer" in ASCII: what does not start with it is not one of our messages


class Header(NamedTuple):
    """What a message says about itself."""

    round: int
    """The round whose weights mix it."""
    serial: int
    """How many messages its sender had sent before: two nodes in step count alike."""
    node: int
    """Who sent it."""
    lr: float
    """The step size of the first parameter group when it left."""
    settings: int
    """A hash of all step sizes and hyper-parameters."""
    stop: int = 0
    """The round before which all nodes stop, once one of them has been asked to; else 0. With a fault, its round."""
    fault: int = 0
    """Why the sender ends without the rest of the message, as `Fault.word` gives it; 0 if it does not."""

    def write(self, words: memoryview) -> None:
        """Put the header into the first 64 bytes of a message."""
        _LAYOUT.pack_into(words, 0, _MARK, *self)

    @classmethod
    def read(cls, words: memoryview) -> "Header | None":
        """The header at the beginning of a message; None if it has none."""
        mark, *fields = _LAYOUT.unpack_from(words)
        return cls(*fields) if mark == _MARK else None


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite, by one sum, which may also overflow.

    >>> is_finite(torch.tensor([3e38, 3e38])), is_finite(torch.tensor([1.0, float("-inf")]))
    (True, False)
    """
    return math.isfinite(tensor.sum()) or bool(tensor.isfinite().all())


def mismatch(mine: Header, theirs: Header | None) -> str | None:
    """Why a peer's message does not match one's own, and what to do about it; None if it does."""
    if theirs is None:
        return (
            f"sent something in round {mine.round} that is no message of this version of Gossamer; "
            f"install the same version everywhere."
        )
    if (theirs.settings == END) != (mine.settings == END):
        does = (
            f"has made its last step, but this node goes on with round {mine.round}"
            if theirs.settings == END
            else f"goes on with round {theirs.round}, but this node has made its last step"
        )
        return f"{does}; every node must call step() equally often (gossamer.rounds(loader, n) makes it so)."
    if (theirs.settings == CHANGE) != (mine.settings == CHANGE):
        how = "has changed" if theirs.settings == CHANGE else "has not changed"
        return (
            f"{how} before round {mine.round} which parameters it trains, unlike this node; "
            f"freeze, unfreeze, add and load parameters on all nodes in the same round."
        )
    if theirs.round != mine.round:
        return (
            f"is in round {theirs.round} while this node is in round {mine.round}; every node must call step() equally "
            f"often (gossamer.rounds(loader, n) makes it so), and resend() and average_() in the same round."
        )
    if theirs.serial != mine.serial:
        return (
            f"has sent {theirs.serial} messages before round {mine.round}, this node {mine.serial}; "
            f"resend(), average_() and changes of the parameters must happen on all nodes in the same round."
        )
    if theirs.settings != mine.settings:
        what = (
            f"its step size is {theirs.lr:g}, here it is {mine.lr:g}"
            if theirs.lr != mine.lr
            else "its momentum, its weight decay or the step size of a later parameter group differs"
        )
        return (
            f"trains with other settings than this node in round {mine.round}: {what}; "
            f"give all nodes the same schedule and step it by rounds."
        )
    return None


class Message:
    """A header and some vectors in one contiguous buffer."""

    __slots__ = ("_aside", "_in_one", "_words", "body", "raw", "vectors")

    def __init__(self, shapes: tuple[torch.Size, ...], dtype: torch.dtype, device: torch.device) -> None:
        sizes = [shape.numel() for shape in shapes]
        self.raw = torch.zeros(HEADER_BYTES + sum(sizes) * dtype.itemsize, dtype=torch.uint8, device=device)
        # Where the processor cannot write into the message itself, the header goes through a small buffer.
        self._aside = None if self.raw.is_cpu else torch.zeros(HEADER_BYTES, dtype=torch.uint8)
        self._words = (self.raw if self._aside is None else self._aside)[:HEADER_BYTES].numpy().data
        self.body = self.raw[HEADER_BYTES:].view(dtype)
        self.vectors = [part.view(shape) for part, shape in zip(torch.split(self.body, sizes), shapes, strict=True)]
        self._in_one = all(len(shape) == 1 for shape in shapes)

    def fill(self, vectors: tuple[Tensor, ...]) -> None:
        """Copy the vectors in."""
        if self._in_one and vectors[0].dtype == self.body.dtype:
            torch.cat(vectors, out=self.body)  # half the time of copying them one by one
        else:
            torch._foreach_copy_(self.vectors, vectors)

    def write(self, header: Header) -> None:
        """Put a header in front."""
        header.write(self._words)
        if self._aside is not None:
            self.raw[:HEADER_BYTES].copy_(self._aside)

    def read(self) -> Header | None:
        """The header in front, if there is one."""
        if self._aside is not None:
            self._aside.copy_(self.raw[:HEADER_BYTES])
        return Header.read(self._words)

    @property
    def bytes(self) -> int:
        """Its length on the wire."""
        return self.raw.numel()


class Form(NamedTuple):
    """What messages that can share buffers have in common."""

    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype
    device: torch.device
    outgoing: int
    """Different messages to send: one to all for mixing, one to each for an exchange."""
    exact: torch.dtype | None = None
    """The type in which the own vectors are kept as well, where the wire is coarser."""


@dataclass
class Envelope:
    """The buffers of one exchange with the neighbours, and the sends that may still be under way."""

    form: Form
    outgoing: list[Message]
    own: list[Tensor]
    sends: list[tuple[int, Any]] = field(default_factory=list)
    round: int = 0


class Envelopes:
    """A pool of envelopes: at least two of a form, used in turn."""

    def __init__(self) -> None:
        self.idle: defaultdict[Form, deque[Envelope]] = defaultdict(deque)
        self._received: defaultdict[Form, list[Message]] = defaultdict(list)

    def take(self, form: Form) -> Envelope:
        """The one that was given back the longest ago, or a new one."""
        idle = self.idle[form]
        if len(idle) >= 2:
            return idle.popleft()
        outgoing = [Message(form.shapes, form.dtype, form.device) for _ in range(form.outgoing)]
        own = (
            outgoing[0].vectors
            if form.exact is None
            else [torch.empty(shape, dtype=form.exact, device=form.device) for shape in form.shapes]
        )
        return Envelope(form, outgoing, own)

    def receivers(self, form: Form, count: int) -> list[Message]:
        """Buffers for `count` messages to come in."""
        free = self._received[form]
        return [free.pop() if free else Message(form.shapes, form.dtype, form.device) for _ in range(count)]

    def forget(self, form: Form) -> None:
        """Keep no buffers of a form that will not be used again."""
        self.idle.pop(form, None)
        self._received.pop(form, None)

    def give_back(self, envelope: Envelope, received: Iterable[Message]) -> None:
        """All has been read. Received buffers are free; what is sent may still be under way."""
        self.idle[envelope.form].append(envelope)
        self._received[envelope.form].extend(received)
