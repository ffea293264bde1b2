"""What a method must do, and what it may promise, each as a function that returns a sentence when it does not hold.

Every function takes a method and a `Trial` and returns None when the property holds. Those of `CONTRACT` hold for
every method; those of `PROMISES` are checked when the method's `facts` declare them.
"""

import copy
import io
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from gossamer import topology as graphs
from gossamer.engine.churn import Churn
from gossamer.engine.minimize import minimize
from gossamer.methods import Method, State
from gossamer.network import SimulatedNetwork
from gossamer.problems import Quadratic
from gossamer.testing.threads import run_in_threads
from gossamer.testing.trial import WEIGHT_DECAY, Event, RecordedNetwork, Trial

Property = Callable[[Method, Trial], str | None]


def runs(method: Method, trial: Trial) -> str | None:
    """Rounds change x in place, keep its dtype and stay finite, in float64 and in float32."""
    for dtype in (torch.float64, torch.float32):
        place = None
        for r, x, _ in trial.simulate(copy.deepcopy(method), dtype=dtype):
            place = place or x.data_ptr()
            if x.data_ptr() != place or x.dtype != dtype:
                return f"round {r} replaced the storage of x instead of changing it in place"
            if not x.isfinite().all():
                return f"x is not finite after round {r} in {dtype}"
        if torch.equal(x, trial.start(dtype)):
            return f"x did not move in {trial.rounds} rounds; change it in place, as in x.sub_(lr * grad)"
    return None


def repeats(method: Method, trial: Trial) -> str | None:
    """The same run twice gives the same bits."""
    first, second = trial.final(method), trial.final(method)
    return None if torch.equal(first, second) else "two runs of the same trial differ"


def allocates_without_communication(method: Method, trial: Trial) -> str | None:
    """`initial` sends nothing."""
    log: list[Event] = []
    method.initial(trial.start(), RecordedNetwork(_network(trial), log))
    return f"initial() called {log[0].call}, but the other nodes may not be there yet" if log else None


def runs_on_one_nodes_vectors(method: Method, trial: Trial) -> str | None:
    """The same lines, with every node holding only its own [d] vectors, give the same trajectory."""
    stacked = trial.final(copy.deepcopy(method))
    alone = run_in_threads(method, trial)
    problem = differ("nodes of their own and the stack of all nodes", alone, stacked, 1e-10)
    return problem and (
        f"{problem}; the usual causes are a missing .wait() after mix or exchange, without which nothing has arrived "
        f"yet, and a sum, mean or norm over all nodes instead of over a node's own coordinates (dim=-1)"
    )


def resumes(method: Method, trial: Trial) -> str | None:
    """A state that is saved half-way and loaded again continues with the same bits."""
    half = trial.rounds // 2
    # Before and after are two objects, as in two processes: what is not in the state is lost.
    method, successor = copy.deepcopy(method), copy.deepcopy(method)
    undisturbed = trial.final(copy.deepcopy(method))
    net = _network(trial)
    x = trial.start()
    state = method.initial(x, net)
    if problem := _not_a_state(state):
        return problem
    for r in range(trial.rounds):
        if r == half:
            file = io.BytesIO()
            torch.save({"x": x, "state": state.tensors()}, file)
            saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
            method, x = successor, trial.start().copy_(saved["x"])
            state = method.initial(trial.start(), net)
            state.load(saved["state"])
        method.step(state, x, trial.gradient(x, r), trial.lr(r), net, r)
    if torch.equal(x, undisturbed):
        return None
    return (
        "a run that was saved and loaded half-way ends elsewhere than one that was not; the usual cause is something "
        "remembered elsewhere than in a field of the state, such as in self"
    )


def starts_in_any_round(method: Method, trial: Trial) -> str | None:
    """A run whose rounds count from a later number, as for parameters that are added later, is the same run."""
    first, again = trial.final(copy.deepcopy(method)), trial.final(copy.deepcopy(method))
    late = trial.final(copy.deepcopy(method), first_round=2 * trial.topology.period)
    if torch.equal(late, first) or not torch.equal(first, again):  # what does not repeat is judged by `repeats`
        return None
    return (
        "a run whose first round has a later number differs, as it would for parameters that are added later; decide "
        "by the state, not by `round`, what the first step does differently"
    )


def takes_a_step_size_per_coordinate(method: Method, trial: Trial) -> str | None:
    """A step size given as a tensor does what the same number does, for each coordinate on its own."""
    as_number = trial.final(copy.deepcopy(method))
    as_tensor = trial.final(method, lr=lambda r: torch.full((trial.dim,), trial.lr(r), dtype=torch.float64))
    problem = differ("the step size as a tensor and as a number", as_tensor, as_number, 1e-10)
    return problem or _moves_a_coordinate_without_step_size(method, trial)


def _moves_a_coordinate_without_step_size(method: Method, trial: Trial) -> str | None:
    """The last coordinate has the step size 0: with equal starts it stays, whatever the others do."""
    last = trial.dim - 1
    others = torch.ones(trial.dim, dtype=torch.float64)
    others[last] = 0.0
    start, end = trial.start(), trial.final(copy.deepcopy(method), lr=lambda r: trial.lr(r) * others)
    if problem := differ("its start and its end", end[:, last], start[:, last], 1e-10):
        return (
            f"a coordinate whose step size is 0 moved: {problem}; use the tensor lr as it is, coordinate by "
            f"coordinate, instead of one number for all"
        )
    # Not each of them: nodes that pull with equal force to both sides cancel exactly.
    if torch.equal(end[:, :last], start[:, :last]):
        return "no coordinate moved although only the last one has the step size 0"
    return None


def sends_what_it_declares(method: Method, trial: Trial) -> str | None:
    """The vectors sent over an edge in a round, and the average that a first round may take, are as declared.

    Where `facts.every` is K, every K-th round sends, and the others are silent. Small counts may go along.
    """
    log: list[Event] = []
    for r, _, _ in trial.simulate(method, wrap=lambda net: RecordedNetwork(net, log)):
        sends = method.facts.sends if (r + 1) % method.facts.every == 0 else 0
        sent = sum(e.widths.count(trial.dim) for e in log if e.call in ("mix", "exchange"))
        averages = sum(e.call == "average" for e in log)
        if sends == "all-reduce" and (sent, averages) != (0, 1):
            return f"it declares one all-reduce, but round {r} made {averages} and sent {sent} vectors over each edge"
        if sends != "all-reduce" and sent != sends:
            return f"it declares {sends} vectors over each edge, but round {r} sent {sent}"
        if sends != "all-reduce" and averages and r > 0:
            return f"round {r} asked for an average over all nodes, which only the first round may"
        if sends != "all-reduce" and r == 0 and averages != int(method.facts.starts_with_all_reduce):
            return (
                f"its first round asked for {averages} averages over all nodes, but it declares "
                f"starts_with_all_reduce={method.facts.starts_with_all_reduce}, which means "
                f"{int(method.facts.starts_with_all_reduce)}"
            )
        log.clear()
    return None


def preserves_mean(method: Method, trial: Trial) -> str | None:
    """xbar <- xbar - eta ubar, where ubar <- beta ubar + gbar (Nesterov: gbar + beta ubar instead of ubar)."""
    beta, nesterov = _momentum(method)
    before = trial.start()
    xbar, ubar = before.mean(0), torch.zeros(trial.dim, dtype=torch.float64)
    for r, x, _ in trial.simulate(method, lr=trial.moving_lr):
        gbar = trial.gradient(before, r).mean(0)
        ubar = beta * ubar + gbar
        xbar = xbar - trial.moving_lr(r) * (gbar + beta * ubar if nesterov else ubar)
        problem = differ(f"the mean of x after round {r} and SGD on the mean gradient", x.mean(0), xbar, 1e-9)
        if problem:
            direction = f"(gbar + {beta:g} ubar)" if nesterov else "ubar"
            return (
                f"{problem}: the mean over the nodes should move as xbar <- xbar - eta {direction} with "
                f"ubar <- {beta:g} ubar + gbar, gbar being the mean of the nodes' gradients at their own x; "
                f"{_told_by(beta, nesterov)}"
            )
        before = x.clone()
    return None


def equals_sgd_alone(method: Method, trial: Trial) -> str | None:
    """Identical nodes (one node too) follow torch.optim.SGD(momentum=beta, nesterov) with the same weight decay."""
    beta, nesterov = _momentum(method)
    trial = replace(trial, identical=True)
    x = trial.start()
    parameter = torch.nn.Parameter(x[0].clone())
    sgd = torch.optim.SGD([parameter], lr=1.0, momentum=beta, nesterov=nesterov, weight_decay=WEIGHT_DECAY)
    for r, x, _ in trial.simulate(method, lr=trial.moving_lr):
        sgd.param_groups[0]["lr"] = trial.moving_lr(r)
        point = parameter.detach()
        parameter.grad = trial.gradient(point, r, node=0) - WEIGHT_DECAY * point
        sgd.step()
        problem = differ(f"x after round {r} and torch.optim.SGD", x, parameter.detach().expand_as(x), 1e-9)
        if problem:
            return (
                f"{problem}: with the same objective on every node, each should move as "
                f"torch.optim.SGD(momentum={beta:g}, nesterov={nesterov}) does alone; {_told_by(beta, nesterov)}"
            )
    return None


def exact(method: Method, trial: Trial) -> str | None:
    """With full gradients of different strongly convex quadratics every node reaches the common optimum."""
    problem = _quadratics(trial)
    optimum, distance = problem.optimum(), math.inf

    def stop_there(r: int, x: Tensor, state: State) -> None:
        nonlocal distance
        if r % 100 == 99:
            distance = float((x - optimum).abs().max())
            if distance < 1e-8:
                raise _ReachedError

    with suppress(_ReachedError):
        minimize(problem, method, trial.topology, lr=0.03, rounds=3000, on_round=stop_there)
        return f"after 3,000 rounds with step size 0.03 a node is {distance:.1e} from the optimum"
    return None


def exact_after_changes(method: Method, trial: Trial) -> str | None:
    """A method that is exact stays so when nodes leave and return: those that are there reach their own optimum."""
    n = trial.topology.n
    if not method.facts.exact or n < 3 or exact(copy.deepcopy(method), trial) is not None:
        return None  # what is not exact without changes is judged by `exact`
    problem, distance = _quadratics(trial), math.inf
    optimum = problem.among(range(1, n)).optimum()
    long, short = [(20, "leaves", n - 1), (60, "joins", n - 1)], [(65, "leaves", n - 1), (70, "joins", n - 1)]
    churn = Churn([*long, *short, (40, "leaves", 0)], stale=10)
    worst = (0.0, 0)

    def look(r: int, x: Tensor, state: State) -> None:
        nonlocal distance, worst
        if method.facts.tracks and r < 80:
            size = float(method.correction(state).abs().max())
            worst = max(worst, (_mean_correction(method, state) / max(1.0, size), r))
        if r % 100 == 99:
            distance = float((x - optimum).abs().max())
            if distance < 1e-8:
                raise _ReachedError

    with suppress(_ReachedError):
        minimize(problem, method, trial.topology, lr=0.03, rounds=3000, on_round=look, churn=churn)
        return (
            f"with nodes that left and returned, and 3,000 rounds of step size 0.03, a node is {distance:.1e} from the "
            f"optimum of those that are there"
        )
    if worst[0] > 1e-10:
        return f"with nodes that left and returned, the mean correction after round {worst[1]} is {worst[0]:.1e}, not 0"
    return None


def _quadratics(trial: Trial) -> Quadratic:
    """Different strongly convex quadratics on the nodes."""
    generator = torch.Generator().manual_seed(trial.seed)
    n = trial.topology.n
    scales = torch.rand(n, generator=generator, dtype=torch.float64) / 4 + 0.75
    return Quadratic(scales, 3 * torch.randn(n, trial.dim, generator=generator, dtype=torch.float64))


class _ReachedError(Exception):
    """Every node is at the optimum, so the remaining rounds would show nothing."""


def rejoins(method: Method, trial: Trial) -> str | None:
    """When a node leaves, the others go on from what their states keep: what must have a mean still has it.

    A state that does not say what it `keeps` starts again, as before the first round.
    """
    n, half = trial.topology.n - 1, trial.rounds // 2
    former, x = _network(trial), trial.start()
    state = method.initial(x, former)
    if n == 0 or not isinstance(state, State) or state.keeps is None:
        return None
    for r in range(half):
        method.step(state, x, trial.gradient(x, r), trial.lr(r), former, r)
    centred = method.facts.tracks and _mean_correction(method, state) < 1e-10  # else `tracks` says so
    graph = graphs.chain(n)
    net, x, before = SimulatedNetwork(graph, dtype=torch.float64), x[:n].clone(), state
    state = method.initial(x, net)
    for name in state.keeps or ():
        getattr(state, name).copy_(getattr(before, name)[:n])
    state.rejoin(x, net, half)
    weights, means, slopes = torch.from_numpy(graph.at(0).dense()), [x.mean(0)], []
    for r in range(half, trial.rounds):
        if centred and (mean := _mean_correction(method, state)) > 1e-10:
            return f"after a node has left, the mean correction before round {r} is {mean:.1e}, not 0"
        for h, gap in state.known():
            if problem := differ("W h - h among the nodes that are left and what is kept", gap, weights @ h - h, 1e-10):
                return f"before round {r}, {problem}"
        grad = torch.stack([trial.gradient(x[i], r, node=i) for i in range(n)])
        slopes.append(grad.mean(0))
        method.step(state, x, grad, trial.moving_lr(r), net, r)
        means.append(x.mean(0))
    if not x.isfinite().all():
        return "x is not finite after a node has left"
    promised = method.facts.preserves_mean and preserves_mean(method, trial) is None  # else that says so
    return _mean_goes_on(method, trial, half, means, slopes) if promised else None


def _mean_correction(method: Method, state: State) -> float:
    return float(method.correction(state).mean(0).abs().max())


def _mean_goes_on(method: Method, trial: Trial, first: int, means: list[Tensor], slopes: list[Tensor]) -> str | None:
    """Directions d of the mean follow each other as those of SGD do: d' = beta d + g', or Nesterov's."""
    beta, nesterov = _momentum(method)
    directions = [(a - b) / trial.moving_lr(first + k) for k, (a, b) in enumerate(pairwise(means))]
    for k, (old, new) in enumerate(pairwise(directions)):
        expected = beta * (old - slopes[k]) + (1 + beta) * slopes[k + 1] if nesterov else beta * old + slopes[k + 1]
        if problem := differ("the direction of the mean of x and that of SGD", new, expected, 1e-8):
            return f"after a node has left, {problem} in round {first + k + 1}"
    return None


def tracks(method: Method, trial: Trial) -> str | None:
    """The mean over the nodes of the correction is zero in every round; after an exchange, the correction is not."""
    largest = 0.0
    for r, _, state in trial.simulate(method):
        correction = method.correction(state)
        size = float(correction.abs().max())
        largest = max(largest, size)
        mean = float(correction.mean(0).abs().max())
        if mean > 1e-10 * max(size, 1.0):
            return f"the mean correction after round {r} is {mean:.1e}, not 0"
    if trial.topology.n > 1 and largest < 1e-6 and trial.rounds >= method.facts.every:
        return "the correction is zero although the nodes differ"
    return None


def overlaps(method: Method, trial: Trial) -> str | None:
    """A step leaves its one message pending for the next round and does not wait for it."""
    log: list[Event] = []
    for r, _, _ in trial.simulate(method, wrap=lambda net: RecordedNetwork(net, log)):
        mixed = [e.round for e in log if e.call == "mix"]
        if mixed != [r + 1]:
            return f"round {r} mixed for the rounds {mixed}, not once for round {r + 1}"
        if Event("wait", r + 1) in log:
            return f"round {r} waited for the message of round {r + 1} instead of leaving it pending"
        log.clear()
    return None


def _network(trial: Trial) -> SimulatedNetwork:
    return SimulatedNetwork(trial.topology, dtype=torch.float64)


def _not_a_state(given: object) -> str | None:
    if isinstance(given, State):
        return None
    return (
        f"initial() gave a {type(given).__name__}, which cannot be saved because it is no gossamer.State; "
        f"subclass gossamer.State with a @dataclass whose fields are all that the method remembers"
    )


def _momentum(method: Method) -> tuple[float, bool]:
    """The SGD that a method is compared with: its own `momentum`, and Nesterov's form if its `nesterov` says so."""
    beta = float(method.momentum)
    return beta, bool(getattr(method, "nesterov", False)) and beta > 0


def _told_by(beta: float, nesterov: bool) -> str:
    """Where `_momentum` has it from, for the author of a method that means something else."""
    form = (
        "with Nesterov's look-ahead, as its nesterov says"
        if nesterov
        else "Nesterov's look-ahead needs nesterov = True"
    )
    return f"{beta:g} is the method's momentum (its beta), {form}"


def differ(what: str, a: Tensor, b: Tensor, tolerance: float) -> str | None:
    """The sentence for two results that should agree, relative to their size."""
    gap = float((a - b).abs().max() / b.abs().max().clamp(min=1.0))
    return None if gap <= tolerance else f"{what} differ by {gap:.1e} (allowed: {tolerance:g})"


CONTRACT: dict[str, Property] = {
    "runs": runs,
    "repeats": repeats,
    "allocates without communication": allocates_without_communication,
    "runs on one node's vectors": runs_on_one_nodes_vectors,
    "resumes": resumes,
    "starts in any round": starts_in_any_round,
    "takes a step size per coordinate": takes_a_step_size_per_coordinate,
    "sends what it declares": sends_what_it_declares,
    "rejoins": rejoins,
    "exact after changes": exact_after_changes,
}

PROMISES: dict[str, Property] = {
    "preserves_mean": preserves_mean,
    "equals_sgd_alone": equals_sgd_alone,
    "exact": exact,
    "exact_on_schedules": exact,
    "tracks": tracks,
    "overlaps": overlaps,
}
