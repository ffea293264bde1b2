"""The paper's synthetic experiment: how far heterogeneity keeps each method from the optimum.

Heterogeneous quadratics on a graph, noisy gradients, one step size for all. Each method is run for every zeta^2, and
|grad f(xbar)|^2 is recorded round by round: once over the initial phase, once over the long run.
"""

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gossamer import methods as rules
from gossamer import topology as graphs
from gossamer.engine import minimize
from gossamer.errors import GossamerError, InputError
from gossamer.methods import Method
from gossamer.problems import Quadratic
from gossamer.topology import Topology

# The methods that stop short of the optimum at a known point, and whether momentum multiplies their step size there.
STALLS = {"dsgd": False, "dsgdm": True, "qg-dsgdm": False, "decentlam": False}
POINTS = 400


@dataclass(frozen=True)
class SyntheticConfig:
    """The settings of the experiment; the defaults are the paper's."""

    nodes: int = 25
    dim: int = 50
    lr: float = 1e-4
    beta: float = 0.9
    sigma2: float = 1.0
    zeta2: tuple[float, ...] = (0.0, 25.0, 50.0)
    topology: str = "ring"
    weights: str = "metropolis"
    rounds: int = 20_000
    seed: int = 0
    methods: tuple[str, ...] = ()
    draws: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise InputError(
                f"The step size must be a finite number above 0, but lr is {self.lr:g}; the paper uses 1e-4."
            )
        for name in ("rounds", "draws"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, but it is {getattr(self, name)}.")
        if not self.zeta2:
            raise InputError("zeta2 is empty, so there is nothing to run; give at least one value, such as 25.")
        for zeta2 in self.zeta2:
            if self.zeta2.count(zeta2) > 1:
                raise InputError(f"zeta2 has {zeta2:g} more than once; give every value once.")
        if not 0 <= self.seed < 2**62:
            raise InputError(f"The seed must be a whole number from 0 to 2^62, but it is {self.seed}.")


@dataclass(frozen=True)
class SyntheticCell:
    """One method at one heterogeneity."""

    method: str
    title: str
    topology: str
    zeta2: float
    rounds: list[int]
    """The rounds at which the curve is shown."""
    curve: list[float]
    """|grad f(xbar)|^2 at those rounds, the mean over the draws of b."""
    tail_mean: float
    """The mean of |grad f(xbar)|^2 over the last quarter of the rounds."""
    stall: float | None
    """|grad f(xbar)|^2 at the point where the method stops without noise, from its closed form; None if it does not."""
    seconds: float


@dataclass(frozen=True)
class SyntheticResult:
    """All cells of the experiment, method by method."""

    config: SyntheticConfig
    cells: list[SyntheticCell]
    notes: list[str]
    """Notes: methods that ran on another graph, were left out, or diverged."""

    @property
    def by_method(self) -> dict[str, list[SyntheticCell]]:
        """The cells of each method, in the order of the config's zeta^2."""
        groups: dict[str, list[SyntheticCell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.method, []).append(cell)
        return groups


def run_synthetic(config: SyntheticConfig, on_progress: Callable[[float], None] = lambda done: None) -> SyntheticResult:
    """Run every method for every zeta^2. `on_progress` is called with the fraction done."""
    graph = graphs.get(config.topology, config.nodes, weights=config.weights, seed=config.seed)
    chosen, notes = _choose(config, graph)
    total = len(chosen) * len(config.zeta2)
    cells: list[SyntheticCell] = []
    for method, where in chosen:
        for zeta2 in config.zeta2:
            cells.append(_run_cell(config, method, where, zeta2))
            on_progress(len(cells) / total)
    return SyntheticResult(config, cells, notes + _divergence(cells))


def _run_cell(config: SyntheticConfig, method: Method, graph: Topology, zeta2: float) -> SyntheticCell:
    # |.|^2 adds up over coordinates, so draws of b stand side by side in one long vector and their mean is sum/draws.
    problem = Quadratic.synthetic(
        config.nodes, config.dim * config.draws, zeta2, config.sigma2 * config.draws, seed=config.seed
    )
    began = time.perf_counter()
    run = minimize(problem, method, graph, lr=config.lr, rounds=config.rounds, seed=config.seed + 1)
    seconds = time.perf_counter() - began
    shown = _shown_rounds(config.rounds)
    curve = run.squared_gradients[shown] / config.draws
    return SyntheticCell(
        method=method.name,
        title=method.facts.title,
        topology=graph.name,
        zeta2=zeta2,
        rounds=shown,
        curve=curve.tolist(),
        tail_mean=run.tail_mean() / config.draws,
        stall=_stall(config, problem, method, graph),
        seconds=seconds,
    )


def _divergence(cells: list[SyntheticCell]) -> list[str]:
    """A note on the methods that diverged."""
    lost = list(dict.fromkeys(c.title for c in cells if not math.isfinite(c.tail_mean)))
    return [f"Diverged at this step size: {', '.join(lost)}; use a smaller one."] if lost else []


def _stall(config: SyntheticConfig, problem: Quadratic, method: Method, graph: Topology) -> float | None:
    if method.name not in STALLS or not graph.is_static:
        return None
    lr = config.lr / (1 - config.beta) if STALLS[method.name] else config.lr
    mean = problem.stall(torch.from_numpy(graph.at(0).dense()), lr).mean(0)
    return float(problem.squared_gradient_norms(mean[None])[0]) / config.draws


def _shown_rounds(rounds: int) -> list[int]:
    """Evenly spaced rounds over the whole run, and as many over its first twentieth."""
    late = range(0, rounds + 1, max(1, rounds // POINTS))
    early = range(0, initial_phase(rounds) + 1, max(1, initial_phase(rounds) // POINTS))
    return sorted({*late, *early, rounds})


def initial_phase(rounds: int) -> int:
    """The number of rounds that count as the initial phase: the first twentieth (1,000 of the paper's 20,000)."""
    return max(1, rounds // 20)


def _choose(config: SyntheticConfig, graph: Topology) -> tuple[list[tuple[Method, Topology]], list[str]]:
    """The methods to run and the graph of each. Those named by the user run on the given graph or are refused."""
    if config.methods:
        named = list({rules.find(name): _make(name, config.beta) for name in config.methods}.values())
        for method in named:
            method.check(graph)
        return [(m, graph) for m in named], []
    chosen, notes = [], []
    for name in rules.BUILT_IN:
        if name in rules.FOR_SLOW_LINKS:
            continue
        method = _make(name, config.beta)
        fitting, note = _fit(method, graph)
        if note:
            notes.append(note)
        if fitting is not None:
            chosen.append((method, fitting))
    return chosen, notes


def _fit(method: Method, graph: Topology) -> tuple[Topology | None, str]:
    """The graph on which a method can run beside the others, with a note when it is not the one asked for."""
    title = method.facts.title
    candidates: Sequence[tuple[Topology, str]] = [(graph, "")]
    if method.facts.needs.tree:
        candidates = [*candidates, (graphs.chain(graph.n), f"{title} needs a tree and runs on the chain of {graph.n}.")]
    elif method.facts.needs.smallest_eigenvalue is not None and graph.is_static and graph.is_symmetric:
        candidates = [
            *candidates,
            (graph.lazy(), f"{title} needs a smallest eigenvalue above -1/3 and runs with lazy weights."),
        ]
    for candidate, note in candidates:
        try:
            method.check(candidate)
        except GossamerError:
            continue
        return candidate, note
    return None, f"{title} is left out, because '{graph.name}' does not give what it needs: {method.facts.needs}."


def _make(name: str, beta: float) -> Method:
    takes_beta = "beta" in inspect.signature(rules.find(name)).parameters
    return rules.get(name, beta=beta) if takes_beta else rules.get(name)
