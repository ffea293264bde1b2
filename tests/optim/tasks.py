"""What nodes learn in these tests: an objective that differs from node to node, as module and as stacked function."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gossamer import optim
from gossamer import topology as graphs
from gossamer.errors import GossamerError
from gossamer.methods import Method
from gossamer.network import Network, SimulatedNetwork
from gossamer.optim import DecentralizedOptimizer
from gossamer.topology import Topology

ROUNDS = 9
WEIGHT_DECAY = 1e-3


class SmoothMLP(nn.Module):
    """Regression with a small tanh network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return (self.net(inputs) - targets).square().mean()


@dataclass(frozen=True)
class Task:
    """A model and each node's data, the same in every process."""

    dtype: torch.dtype

    @property
    def tolerance(self) -> float:
        """How far a trajectory may be from the simulator's, relative to its largest number."""
        return {torch.float32: 1e-5, torch.float64: 1e-12}[self.dtype]

    @property
    def decoupled(self) -> bool:
        """Whether its weight decay is."""
        return self.dtype == torch.float64

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return SmoothMLP().to(self.dtype)

    def data(self, n: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.dtype)

        shift = torch.linspace(-1, 1, n, dtype=self.dtype)[:, None, None]
        return draw(n, 16, 3) + shift, draw(n, 16, 1) + shift


TASKS = {str(dtype).removeprefix("torch."): Task(dtype) for dtype in (torch.float32, torch.float64)}


def graph(name: str, n: int, optimizer: type[DecentralizedOptimizer]) -> Topology | None:
    """The graph, lazy where the method needs that, or None where it accepts neither."""
    plain = graphs.get(name, n)
    for candidate in (plain, plain.lazy()):
        try:
            optimizer.method().check(candidate)
        except GossamerError:
            continue
        return candidate
    return None


GRAPHS = {
    4: ("chain", "one-peer-exponential"),
    8: ("ring", "star", "hypercube", "chain", "random-matchings:period=7,seed=3"),
}


def combinations(n: int) -> list[tuple[str, str, Topology]]:
    """Every (optimizer, name of the graph, graph) that fits."""
    plain = [
        (optimizer.__name__, name, fitting)
        for optimizer in optim.ALL
        for name in GRAPHS[n]
        if (fitting := graph(name, n, optimizer)) is not None
    ]
    changing = [(name, where, graphs.get(where, n)) for name in ("MomentumTracking", "KGT") for where in SCHEDULES]
    return plain + changing + [(f"MoTEF with {spec}", "chain", graphs.chain(n)) for spec in COMPRESSORS]


SCHEDULES = ("base:degree=2", "epidemic:peers=2,period=5", "lossy:graph=ring,drop=0.3,period=6")
COMPRESSORS = ("quantize:bits=1", "quantize:bits=8", "top-k:share=0.3", "random-k:share=0.3")

DENSE = ["identity", *(f"quantize:bits={bits}" for bits in (1, 2, 3, 4, 7, 8, 9, 16))]
SPARSE = [f"{name}:share={share}" for name in ("top-k", "random-k") for share in (0.1, 0.01)]
FORMATS = {"motef": DENSE + SPARSE, "motef:predict=true": DENSE, "choco-sgdm": DENSE + SPARSE}
LONG = [(name, spec, dtype) for name in FORMATS for spec in FORMATS[name] for dtype in (torch.float32, torch.float64)]


def long_run(method: Method, dtype: torch.dtype, net: Network, node: int | slice = slice(None)) -> Tensor:
    """Where quadratics of 3,001 numbers end: several blocks and, of top-k, positions of two bytes."""
    generator = torch.Generator().manual_seed(0)
    scales, targets = torch.randn(2, 4, 3001, generator=generator, dtype=torch.float64).to(dtype)[:, node]
    x = torch.ones_like(targets)
    state = method.initial(x, net)
    for r in range(12):
        method.step(state, x, (0.5 + scales.square()) * (x - 3 * targets), (0.02, 0.0, 0.004)[r // 5], net, r)
    return x


def compressed(name: str) -> dict[str, Any]:
    """The options of an optimizer called "MoTEF with quantize:bits=4"; none for a name alone."""
    return {"compress": name.partition(" with ")[2]} if " with " in name else {}


def step_size(round: int) -> float:
    """It changes once."""
    return 0.02 if round < 5 else 0.01


def train_all(make: Callable[..., DecentralizedOptimizer], topology: Topology, **options: Any) -> dict[str, Tensor]:
    """All tasks at once under one optimizer, whose parameters are thus of several types; the trace of each."""
    models = {name: task.model() for name, task in TASKS.items()}
    groups = [{"params": list(models[name].parameters()), "decoupled": task.decoupled} for name, task in TASKS.items()]
    optimizer = make(groups, lr=1.0, weight_decay=WEIGHT_DECAY, topology=topology, **options)
    data = {name: [part[optimizer.node] for part in task.data(topology.n)] for name, task in TASKS.items()}
    traces: dict[str, list[Tensor]] = {name: [] for name in TASKS}
    for r in range(ROUNDS):
        for group in optimizer.param_groups:
            group["lr"] = step_size(r)
        optimizer.zero_grad()
        sum(model(*data[name]) for name, model in models.items()).backward()
        optimizer.step()
        for name, model in models.items():
            traces[name].append(flat(model))
    optimizer.close()
    return {name: torch.stack(trace) for name, trace in traces.items()}


def train(
    rank: int,
    task: Task,
    make: Callable[..., DecentralizedOptimizer],
    topology: Topology,
    rounds: int = ROUNDS,
    **options: Any,
) -> tuple[Tensor, DecentralizedOptimizer]:
    """The parameters of node `rank` after every round, flat."""
    model = task.model()
    optimizer = make(model.parameters(), lr=1.0, weight_decay=WEIGHT_DECAY, topology=topology, **options)
    data = [part[optimizer.node] for part in task.data(topology.n)]
    return fit(model, optimizer, data, rounds, step_size), optimizer


def fit(model: nn.Module, optimizer: Any, data: Iterable[Tensor], rounds: int, lr: Any = None) -> Tensor:
    """An ordinary PyTorch loop; the parameters after every round, flat."""
    trace = []
    for r in range(rounds):
        for group in optimizer.param_groups if lr else ():
            group["lr"] = lr(r)
        optimizer.zero_grad()
        model(*data).backward()
        optimizer.step()
        trace.append(flat(model))
    return torch.stack(trace)


def simulate(task: Task, method: Any, topology: Topology, rounds: int = ROUNDS) -> Tensor:
    """The simulator's trajectory of the same run: [rounds, N, d]."""
    model = task.model()
    names, parameters = zip(*model.named_parameters(), strict=True)
    shapes, sizes = [p.shape for p in parameters], [p.numel() for p in parameters]

    def loss(row: Tensor, *data: Tensor) -> Tensor:
        pieces = [piece.view(shape) for piece, shape in zip(row.split(sizes), shapes, strict=True)]
        return functional_call(model, dict(zip(names, pieces, strict=True)), data)

    gradient = vmap(grad(loss), in_dims=(0, 0, 0))
    if method.facts.compresses:  # the last bit of a number may decide between two levels: one node after the other

        def gradient(stack: Tensor, *data: Tensor) -> Tensor:
            return torch.stack([grad(loss)(*rows) for rows in zip(stack, *data, strict=True)])

    data = task.data(topology.n)
    net = SimulatedNetwork(topology, dtype=task.dtype)
    x = flat(model).expand(topology.n, -1).clone()
    state = method.initial(x, net)
    trace = []
    for r in range(rounds):
        slope = gradient(x, *data)
        if task.decoupled:
            state.shrink(x, 1 - step_size(r) * WEIGHT_DECAY)
        else:
            slope.add_(x, alpha=WEIGHT_DECAY)
        method.step(state, x, slope, step_size(r), net, r)
        trace.append(x.clone())
    return torch.stack(trace)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
