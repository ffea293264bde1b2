"""The same run twice: by the reference implementation, node by node, and by the library."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer import methods
from gossamer.network import SimulatedNetwork
from gossamer.testing import reference
from gossamer.testing.reference_world import Weights, World
from gossamer.topology import Topology

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NoisyQuadratics:
    """Nodes with different quadratics, 1/2 sum_k curvature_ik x_k^2 - pull_ik x_k, noisy gradients and weight decay.

    The coordinates do not touch each other, so that a run can be repeated for each of them alone.
    """

    start: Array  # [d]
    curvature: Array  # [N, d]
    pull: Array  # [N, d]
    noise: Array  # [rounds, N, d]
    weight_decay: float = 0.05

    @classmethod
    def drawn(cls, n: int = 8, d: int = 4, rounds: int = 50, seed: int = 0) -> "NoisyQuadratics":
        """Random curvatures, pulls and noise."""
        rng = np.random.default_rng(seed)
        return cls(
            start=rng.normal(size=d),
            curvature=rng.uniform(0.2, 1.5, size=(n, d)),
            pull=rng.normal(scale=2.0, size=(n, d)),
            noise=rng.normal(scale=0.3, size=(rounds, n, d)),
        )

    @property
    def rounds(self) -> int:
        """How many rounds the noise lasts."""
        return len(self.noise)

    def coordinate(self, k: int) -> "NoisyQuadratics":
        """The task of coordinate k alone."""
        only = slice(k, k + 1)
        return NoisyQuadratics(
            self.start[only],
            self.curvature[:, only],
            self.pull[:, only],
            self.noise[:, :, only],
            self.weight_decay,
        )

    def gradient(self, i: int, r: int, x: Array) -> Array:
        """Node i's gradient at its own x in round r."""
        gradient: Array = self.curvature[i] * x - self.pull[i] + self.noise[r, i]
        return gradient + self.weight_decay * x

    def stacked_gradient(self, dtype: torch.dtype) -> Callable[[int, torch.Tensor], torch.Tensor]:
        """The same for all nodes at once: a function of the round and the stack of their x."""
        curvature, pull, noise = (torch.from_numpy(a).to(dtype) for a in (self.curvature, self.pull, self.noise))
        return lambda r, x: curvature * x - pull + noise[r] + self.weight_decay * x


def world(topology: Topology) -> World:
    """What the reference implementation needs to know of a topology, in dictionaries."""

    def weights(r: int) -> Weights:
        mixing = topology.at(r)
        rows: Weights = {}
        for i in range(topology.n):
            stored = range(int(mixing.indptr[i]), int(mixing.indptr[i + 1]))
            rows[i] = {int(mixing.indices[k]): float(mixing.values[k]) for k in stored}
        return rows

    neighbours: dict[int, set[int]] = {i: set() for i in range(topology.n)}
    if topology.is_static:
        for i, j in topology.graph.edges.tolist():
            neighbours[i].add(j)
            neighbours[j].add(i)
    return World(list(range(topology.n)), weights, neighbours)


def reference_run(
    name: str,
    topology: Topology,
    task: NoisyQuadratics,
    rates: Iterable[float],
    on_round: Callable[[int, Any], None] | None = None,
    **hyperparameters: Any,
) -> Array:
    """x after every round, [rounds, N, d], node by node."""
    method = reference.METHODS[name](world(topology), task.start, **hyperparameters)
    trajectory = []
    for r, eta in enumerate(rates):
        g = {i: task.gradient(i, r, method.x[i]) for i in method.nodes}
        method.round(r, g, eta)
        trajectory.append([method.x[i] for i in method.nodes])
        if on_round is not None:
            on_round(r, method)
    return np.array(trajectory)


def library_run(
    name: str,
    topology: Topology,
    task: NoisyQuadratics,
    rates: Sequence[float | torch.Tensor],
    dtype: torch.dtype = torch.float64,
    on_round: Callable[[int, methods.Method, Any], None] | None = None,
    **hyperparameters: Any,
) -> Array:
    """x after every round, [rounds, N, d], by the library; raises if the method refuses the topology."""
    method = methods.get(name, **hyperparameters)
    method.check(topology)
    net = SimulatedNetwork(topology, dtype=dtype)
    gradient = task.stacked_gradient(dtype)
    x = torch.from_numpy(task.start).to(dtype).expand(topology.n, -1).clone()
    state = method.initial(x, net)
    trajectory = []
    for r, lr in enumerate(rates):
        method.step(state, x, gradient(r, x), lr, net, r)
        trajectory.append(x.double().numpy().copy())
        if on_round is not None:
            on_round(r, method, state)
    return np.array(trajectory)


def distance(actual: Array, expected: Array) -> float:
    """The largest difference, relative to the largest value; infinite for anything that is not a number."""
    gap = float(np.abs(actual - expected).max() / np.abs(expected).max())
    return gap if np.isfinite(gap) else float("inf")
