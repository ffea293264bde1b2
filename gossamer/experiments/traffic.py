"""What exchanges cost on a slow link: bytes, seconds on the wire, and how many of them computing hides."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer import methods
from gossamer._common.checks import is_finite_number, whole_number
from gossamer.compression import Compressed
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.methods.contract import MethodChoice
from gossamer.network import SimulatedNetwork
from gossamer.network.contract import Ready
from gossamer.topology import Mixing, Topology, complete

HEADERS = 1514 / 1448
"""What Ethernet, IP and TCP add to the bytes of a message: a full frame over what it carries."""

SAMPLE = 1 << 20
"""Of a longer vector, compressing so many numbers is measured; it takes as long for each of the others."""
_STEPS = 7

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
COUNTS = {**_PREFIXES, "B": 1e9}
RATES = {f"{k}{unit}/s": f * bits for k, f in _PREFIXES.items() for unit, bits in (("bit", 1), ("B", 8))}
TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0}


@dataclass(frozen=True)
class Traffic:
    """The messages of a method: what they are, and what they take. Times are in seconds."""

    method: Method
    every: int
    """Steps from one exchange to the next."""
    bytes: float
    """What the site with the most neighbours sends in an exchange."""
    wire: float
    """How long an exchange is on the wire."""
    waiting: float
    """What remains of that when computing has hidden the rest: the nodes wait."""
    coding: float
    """How long that site computes in an exchange to compress and to unpack, on one thread of this machine."""
    step: float
    """The mean time of a step, waiting and compressing included."""

    @property
    def hidden(self) -> float:
        """How much of an exchange passes while the nodes compute."""
        return self.wire - self.waiting

    @property
    def bytes_per_step(self) -> float:
        """What that site sends, on average over the steps."""
        return self.bytes / self.every


def plan(
    method: MethodChoice, topology: Topology, *, parameters: int, link: float, step: float, every: int = 1
) -> Traffic:
    """What exchanges of a model of float32 `parameters` cost over links of `link` bits per second in each direction.

    `step` is the time of a training step without messages, in seconds. `every` is the number of steps for each
    exchange: the argument of a method that has it, or of `optim.Outer` around any other. An exchange takes as long as
    the site with the most neighbours needs for sending; a message that overlaps is on its way during all steps up to
    the next exchange. What it takes to compress and to unpack is measured, on this machine and in this call.

    >>> from gossamer.topology import ring
    >>> traffic = plan("motef", ring(8), parameters=1_000_000, link=1e8, step=0.2)
    >>> round(traffic.bytes), round(traffic.wire, 2), traffic.waiting
    (2062512, 0.17, 0.0)
    """
    chosen, outer = _with_every(methods.resolve(method), every)
    dim = whole_number(parameters, "the number of parameters", least=1)
    for value, what in ((link, "The rate of a link"), (step, "The time of a step")):
        if not is_finite_number(value) or value < 0 or (value == 0 and what == "The rate of a link"):
            raise InputError(f"{what} must be a number above 0, not {value!r}.")
    chosen.check(topology)
    facts, period = chosen.facts, outer * chosen.facts.every
    busiest = float(np.mean([_most_messages(mixing) for mixing in topology.mixings]))
    if facts.sends == "all-reduce":
        sent = 2 * (topology.n - 1) / topology.n * dim * 4
    else:
        sent = facts.sends * busiest * chosen.compressor.bytes(dim)
    wire = 8 * sent * HEADERS / link
    waiting = max(0.0, wire - period * step) if facts.overlaps else wire
    coding = coding_time(chosen, dim, round(busiest)) if facts.compresses else 0.0
    return Traffic(chosen, period, sent, wire, waiting, coding, step + (waiting + coding) / period)


class _AsWithNeighbours(SimulatedNetwork):
    """One node that encodes and decodes as if it had neighbours, which send what it sends itself."""

    def __init__(self, neighbours: int) -> None:
        super().__init__(complete(1))
        self.neighbours = neighbours

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Ready:
        """What the node sent, after as much work as if it had arrived from all neighbours."""
        for vector in vectors:
            if isinstance(vector, Compressed):
                (wire,), (row,) = vector.wire(), vector.values
                total = torch.zeros_like(row, dtype=torch.float64)
                for _ in range(self.neighbours):
                    total.add_(vector.compressor.decode(wire, row), alpha=0.5)
        return super().mix(*vectors, round=round, out=out)


@torch.no_grad()
def coding_time(method: Method, dim: int, neighbours: int) -> float:
    """The seconds of a step of a method that compresses, for `dim` numbers, on one thread and without any wire."""
    net, length = _AsWithNeighbours(neighbours), min(dim, SAMPLE)
    generator = torch.Generator().manual_seed(0)
    x, seconds = torch.randn(1, length, generator=generator), []
    state = method.initial(x, net)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for r in range(_STEPS):
            gradient = torch.randn(1, length, generator=generator)
            began = time.perf_counter()
            method.step(state, x, gradient, 1e-3, net, r)
            seconds.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return min(seconds) * dim / length  # whatever else keeps the processor busy makes it longer


def amount(text: str, what: str, units: dict[str, float], example: str) -> float:
    """A number with its unit, as the command line has it.

    >>> amount("25.6M", "the number of parameters", COUNTS, "25.6M")
    25600000.0
    """
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/ ")
    unit = text.strip()[len(digits) :].strip()
    try:
        value = float(digits)
    except ValueError:
        value = -1.0
    if unit not in units or not is_finite_number(value) or value <= 0:
        known = ", ".join(name for name in units if name)
        raise InputError(f"{what} must be a number above 0 such as {example}, not '{text}'; units: {known}.")
    return value * units[unit]


def _with_every(method: Method, every: int) -> tuple[Method, int]:
    """The method, and how many steps `optim.Outer` makes for each of its rounds."""
    if whole_number(every, "the number of steps between two exchanges", least=None) < 1:
        raise InputError(f"An exchange follows at least 1 step, but every is {every}.")
    if every > 1 and "every" in method.hyperparameters:
        return methods.get(method.name, **{**method.hyperparameters, "every": every}), 1
    return method, every


def _most_messages(mixing: Mixing) -> int:
    """The messages that the busiest node sends or receives in a round."""
    sent, received = np.bincount(mixing.indices, minlength=mixing.n), np.diff(mixing.indptr)
    return int(max(sent.max(), received.max())) - 1
