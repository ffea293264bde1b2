"""A small run to try a method on, and a network that notes what the method asks of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from gossamer.compression import Compressed
from gossamer.methods import Method, State
from gossamer.network import Network, Pending, SimulatedNetwork
from gossamer.topology import Topology

WEIGHT_DECAY = 1e-3


@dataclass(frozen=True)
class Trial:
    """A graph, heterogeneous quadratics with noise, and a step size that changes; the same trial gives the same bits.

    >>> from gossamer import topology
    >>> Trial(topology.ring(5)).start().shape
    torch.Size([5, 5])
    """

    topology: Topology
    dim: int = 5
    seed: int = 0
    rounds: int = 12
    identical: bool = False
    """All nodes hold the same objective and the same noise."""

    @cached_property
    def _draws(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        n = self.topology.n

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        curvature, centre, noise = draw(n, 1).square() + 0.5, draw(n, self.dim), 0.1 * draw(self.rounds, n, self.dim)
        if self.identical:
            curvature, centre, noise = curvature[:1], centre[:1], noise[:, :1]
        return curvature, centre, noise, draw(self.dim)

    def lr(self, round: int) -> float:
        """The step size: it changes in the course of the run, and rests once."""
        if round == self.rounds // 3:
            return 0.0
        return 0.05 if round < self.rounds // 2 else 0.02

    def moving_lr(self, round: int) -> float:
        """The same without the rest: some methods freeze their momentum where eta = 0."""
        return self.lr(round) or 0.03

    def start(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The common first point [N, d]."""
        return self._draws[3].to(dtype).expand(self.topology.n, self.dim).clone()

    def gradient(self, x: Tensor, round: int, node: int | None = None) -> Tensor:
        """The noisy gradient at x with weight decay: of all nodes for x [N, d], of one node for x [d]."""
        curvature, centre, noise = self._draws[0], self._draws[1], self._draws[2][round]
        if node is not None:
            row = 0 if self.identical else node
            curvature, centre, noise = curvature[row], centre[row], noise[row]
        return (curvature * (x - centre) + noise + WEIGHT_DECAY * x).to(x.dtype)

    def simulate(
        self,
        method: Method,
        dtype: torch.dtype = torch.float64,
        lr: Callable[[int], float | Tensor] | None = None,
        wrap: Callable[[Network], Network] = lambda net: net,
        first_round: int = 0,
    ) -> Iterator[tuple[int, Tensor, State]]:
        """Run on the simulated network and give (round, x, state) after every round.

        The method is told that the rounds count from `first_round`.
        """
        net = wrap(SimulatedNetwork(self.topology, dtype=dtype))
        x = self.start(dtype)
        state = method.initial(x, net)
        for r in range(self.rounds):
            method.step(state, x, self.gradient(x, r), (lr or self.lr)(r), net, first_round + r)
            yield r, x, state

    def final(self, method: Method, **options: object) -> Tensor:
        """The last x of `simulate`."""
        *_, (_, x, _) = self.simulate(method, **options)  # type: ignore[arg-type]
        return x


@dataclass(frozen=True)
class Event:
    """One call: what was asked for, for which round, and the widths of the vectors that travelled."""

    call: Literal["mix", "average", "exchange", "wait"]
    round: int = -1
    widths: tuple[int, ...] = ()


class _RecordedPending:
    def __init__(self, pending: Pending, round: int, log: list[Event]) -> None:
        self._pending, self._round, self._log = pending, round, log

    def wait(self) -> tuple[Tensor, ...]:
        self._log.append(Event("wait", self._round))
        return self._pending.wait()


class RecordedNetwork:
    """Passes every call on to `net` and appends an `Event` to `log`."""

    def __init__(self, net: Network, log: list[Event]) -> None:
        self._net, self._log = net, log
        self.n, self.topology = net.n, net.topology

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Note and pass on."""
        widths = tuple((v.values if isinstance(v, Compressed) else v).shape[-1] for v in vectors)
        self._log.append(Event("mix", round, widths))
        return _RecordedPending(self._net.mix(*vectors, round=round, out=out), round, self._log)

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """Note and pass on."""
        self._log.append(Event("average", round, (vector.shape[-1],)))
        return self._net.average(vector, round=round)

    def spread(self, vector: Tensor) -> Tensor:
        """Pass on: nothing travels."""
        return self._net.spread(vector)

    def collect(self, rows: Tensor) -> Tensor:
        """Pass on: nothing travels."""
        return self._net.collect(rows)

    def exchange(self, *rows: Tensor, round: int) -> Pending:
        """Note and pass on."""
        self._log.append(Event("exchange", round, tuple(r.shape[-1] for r in rows)))
        return _RecordedPending(self._net.exchange(*rows, round=round), round, self._log)
