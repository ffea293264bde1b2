"""A small run to try a method on: a graph, heterogeneous quadratics with noise, a step size that changes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gossamer.methods import Method, State
from gossamer.network import Network, SimulatedNetwork
from gossamer.topology import Topology

WEIGHT_DECAY = 1e-3


@dataclass(frozen=True)
class Setting:
    """Everything that decides a trial run; the same setting gives the same bits.

    >>> from gossamer import topology
    >>> Setting(topology.ring(5)).start().shape
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
        curvature, centre, noise, _ = self._draws
        rows: int | slice = slice(None) if node is None or self.identical else node
        here = 0 if node is not None and self.identical else rows
        return (curvature[here] * (x - centre[here]) + noise[round, here] + WEIGHT_DECAY * x).to(x.dtype)

    def simulate(
        self,
        method: Method,
        dtype: torch.dtype = torch.float64,
        lr: Callable[[int], float | Tensor] | None = None,
        wrap: Callable[[Network], Network] = lambda net: net,
    ) -> Iterator[tuple[int, Tensor, State]]:
        """Run on the simulated network and give (round, x, state) after every round."""
        net = wrap(SimulatedNetwork(self.topology, dtype=dtype))
        x = self.start(dtype)
        state = method.initial(x, net)
        for r in range(self.rounds):
            method.step(state, x, self.gradient(x, r), (lr or self.lr)(r), net, r)
            yield r, x, state

    def final(self, method: Method, **options: object) -> Tensor:
        """The last x of `simulate`."""
        *_, (_, x, _) = self.simulate(method, **options)  # type: ignore[arg-type]
        return x
