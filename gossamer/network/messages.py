"""Flat messages: one contiguous buffer per neighbour that starts with a header and holds all vectors.

Buffers are kept and used again: one that was sent two messages later at the earliest, by when it has left; one that was
received as soon as it has been read.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.network import header
from gossamer.network.header import Header


class Message:
    """A header and some vectors in one contiguous run of bytes."""

    __slots__ = ("_aside", "_body", "_words", "raw", "vectors")

    def __init__(self, shapes: tuple[torch.Size, ...], dtype: torch.dtype, device: torch.device) -> None:
        sizes = [shape.numel() for shape in shapes]
        self.raw = torch.zeros(header.BYTES + sum(sizes) * dtype.itemsize, dtype=torch.uint8, device=device)
        # Where the processor cannot write into the message itself, the header goes by way of a small buffer.
        self._aside = None if self.raw.is_cpu else torch.zeros(header.BYTES, dtype=torch.uint8)
        self._words = (self.raw if self._aside is None else self._aside)[: header.BYTES].numpy().data
        body = self.raw[header.BYTES :].view(dtype)
        self.vectors = [part.view(shape) for part, shape in zip(torch.split(body, sizes), shapes, strict=True)]
        self._body = body if all(len(shape) == 1 for shape in shapes) else None

    def fill(self, vectors: tuple[Tensor, ...]) -> None:
        """Copy the vectors in."""
        if self._body is not None and vectors[0].dtype == self._body.dtype:
            torch.cat(vectors, out=self._body)  # half the time of copying them one by one
        else:
            torch._foreach_copy_(self.vectors, vectors)

    def write(self, head: Header) -> None:
        """Put a header in front."""
        head.write(self._words)
        if self._aside is not None:
            self.raw[: header.BYTES].copy_(self._aside)

    def read(self) -> Header | None:
        """The header in front, if there is one."""
        if self._aside is not None:
            self._aside.copy_(self.raw[: header.BYTES])
        return Header.read(self._words)

    @property
    def bytes(self) -> int:
        """Its length on the wire."""
        return self.raw.numel()


class Form(NamedTuple):
    """What messages have in common that can share buffers."""

    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype
    device: torch.device
    outgoing: int
    """Different messages to send: one to all for mixing, one to each for an exchange."""
    exact: torch.dtype | None = None
    """The type in which the own vectors are kept besides, where the wire is coarser."""


@dataclass
class Envelope:
    """The buffers of one exchange with the neighbours, and the sending that may still be under way."""

    form: Form
    outgoing: list[Message]
    own: list[Tensor]
    sends: list[tuple[int, Any]] = field(default_factory=list)
    round: int = 0


class Envelopes:
    """A supply of envelopes: at least two of a form, used in turn."""

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
        """Keep no buffers of a form that will not come again."""
        self.idle.pop(form, None)
        self._received.pop(form, None)

    def give_back(self, envelope: Envelope, received: Iterable[Message]) -> None:
        """All has been read. What came in is free; what is sent may still be under way."""
        self.idle[envelope.form].append(envelope)
        self._received[envelope.form].extend(received)
