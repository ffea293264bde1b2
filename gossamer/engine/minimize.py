"""Run a method on a problem with known answers: N nodes, stacked, one round at a time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gossamer import methods
from gossamer import topology as graphs
from gossamer._common.checks import is_finite_number, whole_number
from gossamer.engine.churn import Churn, ChurnEvent, churn_of
from gossamer.engine.schedule import Lr, step_size_of
from gossamer.errors import InputError
from gossamer.methods import State
from gossamer.methods.contract import MethodChoice
from gossamer.network import SimulatedNetwork
from gossamer.problems.contract import Problem
from gossamer.topology import Topology

# Rounds whose mean points are kept before their gradient norms are computed in one go.
CHUNK = 1000


@dataclass
class Trajectory:
    """What happened in a run of `minimize`.

    >>> from gossamer import DSGD, topology
    >>> from gossamer.problems import Quadratic
    >>> run = minimize(Quadratic.synthetic(nodes=4, dim=2), DSGD(), topology.ring(4), lr=0.1, rounds=10)
    >>> run.squared_gradients.shape, run.x.shape
    (torch.Size([11]), torch.Size([4, 2]))
    """

    squared_gradients: Tensor
    """|grad f(xbar_r)|^2 for r = 0 .. rounds: entry r belongs to the mean point before round r."""
    x: Tensor
    """The final points, one row per node that is there."""
    state: State
    """The method's final state."""
    means: Tensor = field(repr=False)
    """xbar_r for every round, if they were asked for (`keep_means`); otherwise empty."""
    present: tuple[int, ...] = ()
    """The nodes that are there at the end."""

    def tail_mean(self, fraction: float = 0.25) -> float:
        """The mean of |grad f(xbar)|^2 over the last part of the rounds."""
        rounds = len(self.squared_gradients) - 1
        return float(self.squared_gradients[-max(1, math.ceil(rounds * fraction)) :].mean())


@torch.no_grad()
def minimize(
    problem: Problem,
    method: MethodChoice,
    topology: Topology | str,
    *,
    lr: Lr,
    rounds: int,
    seed: int = 0,
    weight_decay: float = 0.0,
    x0: Tensor | None = None,
    churn: Churn | Sequence[ChurnEvent] | str | None = None,
    keep_means: bool = False,
    on_round: Callable[[int, Tensor, Any], None] | None = None,
) -> Trajectory:
    """Run `rounds` rounds of `method` from one common point and record |grad f(xbar)|^2.

    Method and topology are objects or names, as in `simulate`.
    `lr` is a step size, a function of the round, or a schedule (`gossamer.engine.Cosine`), whose epochs are rounds
    here. The gradients are exact unless the problem is `noisy`. `on_round(r, x, state)` is called after every round.
    `churn` is as in `simulate`: f is then the mean over the nodes that are there, and so is xbar.

    >>> from gossamer import MomentumTracking, topology
    >>> from gossamer.problems import Quadratic
    >>> problem = Quadratic.synthetic(nodes=8, dim=3, zeta2=25.0)
    >>> run = minimize(problem, MomentumTracking(), topology.ring(8), lr=0.01, rounds=2000)
    >>> bool(run.squared_gradients[-1] < 1e-20)
    True
    """
    method, topology = methods.resolve(method), graphs.resolve(topology, problem.n)
    if topology.n != problem.n:
        raise InputError(
            f"The problem has {problem.n} nodes but the graph '{topology.name}' has {topology.n}; make them equal."
        )
    if whole_number(rounds, "the number of rounds", least=None) < 1:
        raise InputError(f"A run needs at least one round, but rounds is {rounds}.")
    if not is_finite_number(weight_decay) or weight_decay < 0:
        raise InputError(f"weight_decay must be a finite number, 0 or above, not {weight_decay!r}.")
    if x0 is not None and x0.shape != (problem.dim,):
        raise InputError(
            f"All nodes start from one point of {problem.dim} coordinates, but x0 has the shape {tuple(x0.shape)}."
        )
    method.check(topology)
    step_size = step_size_of(lr, rounds_per_epoch=1, rounds=rounds)
    everyone, members = problem, None
    if churn is not None:
        from gossamer.engine.members import Members, go_on

        who = churn_of(churn)
        members = Members(who.present(problem.n, rounds, seed=seed), who.stale, method, topology)
        problem, topology = everyone.among(members.present), members.graph
    net = SimulatedNetwork(topology, dtype=problem.dtype)
    generator = torch.Generator().manual_seed(whole_number(seed, "the seed"))
    start = problem.start() if x0 is None else x0.to(problem.dtype)
    x = start.expand(problem.n, problem.dim).clone()
    grad = torch.empty_like(x)
    state = method.initial(x, net)
    record = torch.empty(rounds + 1, dtype=torch.float64)
    means = torch.empty(rounds + 1 if keep_means else CHUNK, problem.dim, dtype=problem.dtype)
    first = 0

    def note(until: int) -> None:
        """Compute what is recorded of the rounds since the last call, up to `until`."""
        nonlocal first
        if until > first:
            place = first if keep_means else first % CHUNK
            record[first:until] = problem.squared_gradient_norms(means[place : place + until - first])
            first = until

    for r in range(rounds + 1):
        if members is not None and r == members.next:
            note(r)
            x, state, net = go_on(members, method, x, state, r)
            problem, grad = everyone.among(members.present), torch.empty_like(x)
        slot = r if keep_means else r % CHUNK
        torch.mean(x, 0, out=means[slot])
        if slot % CHUNK == CHUNK - 1 or r == rounds:
            note(r + 1)
        if r == rounds:
            break
        if problem.noisy:
            problem.stochastic_gradient(x, generator, out=grad)
        else:
            problem.gradient(x, out=grad)
        if weight_decay:
            grad.add_(x, alpha=weight_decay)
        method.step(state, x, grad, step_size(r), net, r)
        if on_round is not None:
            on_round(r, x, state)
    there = members.present if members else tuple(range(problem.n))
    return Trajectory(record, x, state, means if keep_means else means[:0], there)
