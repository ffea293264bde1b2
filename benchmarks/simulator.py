"""The simulator against plain training, and against one process per node.

    python benchmarks/simulator.py [--rounds 30] [--only a,b,...] [--json FILE]

(a)-(e) compare one simulated Momentum Tracking round of N nodes with one plain training step of a single model
(forward, backward, SGD with momentum) over the same N * batch samples. Both use all cores, each in a new process,
because earlier work affects the heap; the plain step uses the same allocator settings and channels-last weights. The
two alternate, and medians are compared. (f) is memory: the growth since import at N = 1024. (g) is the cost per
node-round at N = 1024 against N = 8. (h) is one process per node over gloo, as in other libraries. (i) is the share of
data and augmentation. (j) is the evaluation of all models, per model and sample, against a training round, per node and
sample. Everything is a ratio, printed with its limit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _measurements import Measurement, finish, options_of
from torch import nn
from torch.nn import functional

from gossamer import MomentumTracking, models, topology
from gossamer.data import Augmentation, Dataset, Normalization, partition
from gossamer.engine.gradients.autograd import AutogradGradients
from gossamer.engine.hardware import Workers, keep_freed_memory
from gossamer.engine.schedule import step_size_of
from gossamer.engine.simulation import Settings, Simulation

LR = 0.001


class WideLeNet(nn.Sequential):
    """LeNet with 32 and 64 channels."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(
            nn.Conv2d(shape[0], 32, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 32),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 64),
            nn.Flatten(),
            nn.Linear(64 * 25, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, classes),
        )


@dataclass(frozen=True)
class Case:
    """One comparison with the plain step."""

    title: str
    model: Callable[..., nn.Module]
    shape: tuple[int, int, int]
    nodes: int
    batch: int
    limit: float
    full: bool = False


CASES = {
    "a": Case("LeNet 1x28x28", models.LeNet, (1, 28, 28), 8, 100, 1.10),
    "b": Case("LeNet 3x32x32", models.LeNet, (3, 32, 32), 8, 100, 1.15),
    "c": Case("LeNet 32/64 channels, 3x32x32", WideLeNet, (3, 32, 32), 8, 100, 1.02),
    "d": Case("LeNet 1x28x28, small batches", models.LeNet, (1, 28, 28), 512, 16, 1.30),
    "e": Case("(a) with data, augmentation, logging", models.LeNet, (1, 28, 28), 8, 100, 1.20, full=True),
}


def simulation(case: Case, workers: Workers) -> Simulation:
    """A simulation of the case; without `full` a batch is only an index into a float tensor."""
    total = max(4 * case.nodes * case.batch, 2 * case.nodes)
    generator = torch.Generator().manual_seed(0)
    if case.full:
        inputs = torch.randint(0, 256, (total, *case.shape), dtype=torch.uint8, generator=generator)
    else:
        inputs = torch.rand(total, *case.shape, generator=generator)
    dataset = Dataset.from_tensors(
        inputs,
        torch.arange(total) % 10,
        normalization=Normalization(),
        augmentation=Augmentation(padding=4) if case.full else None,
    )
    data = dataset.split(partition.iid(nodes=case.nodes), holdout=0)
    graph = topology.ring(case.nodes) if case.nodes < 100 else topology.random_regular(case.nodes, 4)
    settings = Settings(step_size=step_size_of(LR, 1, 1), batch_size=case.batch, weight_decay=1e-3)
    torch.manual_seed(0)
    return Simulation(case.model(case.shape, 10), data, MomentumTracking(), graph, settings, workers)


def seconds(one: Callable[[], object]) -> float:
    began = time.perf_counter()
    one()
    return time.perf_counter() - began


def comparison(argument: str) -> Callable[[], float]:
    """The median time of a simulated round over that of the plain step."""
    item, rounds = json.loads(argument)
    return lambda: compare(item, rounds)


def compare(item: str, rounds: int) -> float:
    case, plain = CASES[item], Child("plain", json.dumps(item))
    with Workers() as workers, tempfile.TemporaryDirectory() as directory:
        run = simulation(case, workers)
        log = (Path(directory) / "metrics.jsonl").open("w")

        def one() -> None:
            run.advance()
            if case.full:
                print(json.dumps({"round": run.round, "loss": run._meter.train_loss}), file=log, flush=True)

        for _ in range(3):
            one(), plain.ask()
        pairs = [(seconds(one), plain.ask()) for _ in range(rounds)]
        log.close()
    plain.close()
    return median(a for a, _ in pairs) / median(b for _, b in pairs)


class Child:
    """This script in another process, which runs one task per request and answers in JSON."""

    def __init__(self, role: str, argument: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--role", role, "--argument", argument]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self) -> None:
        """Send a request."""
        print(file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Wait for the answer."""
        return json.loads(self._process.stdout.readline())  # type: ignore[union-attr]

    def ask(self) -> Any:
        """Send a request and wait for the answer."""
        self.start()
        return self.answer()

    def only_answer(self) -> Any:
        """Send one request, wait for the answer and end the process."""
        answer = self.ask()
        self.close()
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve(one: Callable[[], object]) -> None:
    for _ in sys.stdin:
        print(json.dumps(one()), flush=True)


def plain_step(argument: str) -> Callable[[], float]:
    """Forward, backward and SGD of one model over the samples of all nodes."""
    case = CASES[json.loads(argument)]
    keep_freed_memory()
    torch.manual_seed(0)
    model = case.model(case.shape, 10).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=1e-3, foreach=True)
    inputs = torch.rand(case.nodes * case.batch, *case.shape)
    targets = torch.arange(len(inputs)) % 10

    def step() -> None:
        sgd.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        sgd.step()

    return lambda: seconds(step)


def private_memory() -> int:
    """Private memory of this process in bytes."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(r.split()[1]) * 1024 for r in rows if r.startswith("Private_"))


def memory_at_1024(_: str) -> Callable[[], dict[str, float]]:
    """Memory growth of a run with 1,024 LeNet nodes, and the least it needs."""
    before = private_memory()

    def measure() -> dict[str, float]:
        case = Case("", models.LeNet, (1, 28, 28), 1024, 16, 0)
        with Workers() as workers:
            run = simulation(case, workers)
            inputs = run.data.dataset.train_inputs.nbytes + run.data.dataset.train_targets.nbytes
            for _ in range(2):
                run.advance()
            grown = private_memory() - before - inputs
            state = sum(t.nbytes for t in _tensors(run.state.tensors()))
            activations = workers.number * saved_bytes(case)
        return {"grown": grown, "needed": run.models.x.nbytes + run.models.grad.nbytes + state + activations}

    return measure


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [t for part in parts for t in _tensors(part)]


def saved_bytes(case: Case) -> int:
    """Bytes that autograd saves in one node's forward pass."""
    kept = 0

    def note(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        case.model(case.shape, 10)(torch.rand(case.batch, *case.shape))
    return kept


def cost_per_node_round(rounds: int) -> float:
    """N = 1024 against N = 8 at the same batch, per node."""
    with Workers() as workers:
        few, many = (simulation(Case("", models.LeNet, (1, 28, 28), n, 16, 0), workers) for n in (8, 1024))
        for run in (few, many):
            run.advance()

        def eight_many_times() -> None:
            for _ in range(128):
                few.advance()

        pairs = [(seconds(many.advance), seconds(eight_many_times)) for _ in range(max(3, rounds // 6))]
    return median(a for a, _ in pairs) / median(b for _, b in pairs)


def gloo_node(argument: str) -> Callable[[], dict[str, float]]:
    """One node of the baseline of (h): a process with its own model that sends to its two neighbours over gloo."""
    import torch.distributed as dist

    rank, size, store = json.loads(argument)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    case = CASES["a"]
    torch.manual_seed(0)
    model = case.model(case.shape, 10)
    inputs, targets = torch.rand(case.batch, *case.shape), torch.arange(case.batch) % 10
    dim = sum(p.numel() for p in model.parameters())
    u, c = torch.zeros(dim), torch.zeros(dim)
    peers = sorted({(rank - 1) % size, (rank + 1) % size})

    def exchange(vector: torch.Tensor) -> torch.Tensor:
        arrived = [torch.empty_like(vector) for _ in peers]
        requests = [dist.isend(vector, p) for p in peers] + [
            dist.irecv(a, p) for a, p in zip(arrived, peers, strict=True)
        ]
        for request in requests:
            request.wait()
        return (vector + sum(arrived)) / 3

    def step() -> None:
        nonlocal u, c
        model.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        with torch.no_grad():
            x = nn.utils.parameters_to_vector(model.parameters())
            grad = torch.cat([p.grad.flatten() for p in model.parameters()])  # type: ignore[union-attr]
            u = 0.9 * u + grad + 1e-3 * x
            moved = exchange(x) - LR * (u - c)
            c = exchange(c - u) + u
            nn.utils.vector_to_parameters(moved, model.parameters())

    def one() -> dict[str, float]:
        took = seconds(step)
        return {"seconds": took, "private": private_memory()}

    return one


def against_processes(rounds: int) -> tuple[float, float]:
    """(time, private memory) of eight processes over gloo, as ratios to the simulator."""
    with tempfile.TemporaryDirectory() as directory:
        nodes = [Child("gloo", json.dumps([rank, 8, f"{directory}/store"])) for rank in range(8)]
        ours = Child("simulated", "")

        def together() -> list[dict[str, float]]:
            for node in nodes:
                node.start()
            return [node.answer() for node in nodes]

        for _ in range(3):
            together(), ours.ask()
        pairs = []
        for _ in range(rounds):
            began = time.perf_counter()
            answers = together()
            pairs.append((time.perf_counter() - began, answers, ours.ask()))
        for child in (*nodes, ours):
            child.close()
    time_ratio = median(t for t, _, _ in pairs) / median(mine["seconds"] for _, _, mine in pairs)
    memory = sum(a["private"] for a in pairs[-1][1]) / pairs[-1][2]["private"]
    return time_ratio, memory


def data_share(rounds: int) -> float:
    """The share of loading, cropping and normalizing its batch in a node's LeNet round, on one thread."""
    with Workers(1) as workers:
        run = simulation(CASES["e"], workers)
        pipeline, inputs = run.data.pipeline, run.data.dataset.train_inputs
        gradients = AutogradGradients(run.models, run.data, torch.ones(run.data.nodes))
        shares = []

        def one(_: int) -> None:
            index, generator = run.batches.next(0), run.batches.generators[0]
            draws = pipeline.draw(len(index), generator)
            fetched = seconds(lambda: pipeline.batch(inputs, index, draws))
            shares.append(fetched / seconds(lambda: gradients.compute(range(1), [index], [draws])))

        workers.run(one, 3 + rounds)
    return median(shares[3:])


def evaluation_cost(rounds: int) -> float:
    """The cost of evaluating a sample over training with one, in case (a), on a test set of 2,000."""
    case = CASES["a"]
    with Workers() as workers:
        run = simulation(case, workers)
        test = torch.rand(2000, *case.shape), torch.arange(2000) % 10
        score = partial(run.gradients.scores, test, workers)
        run.advance(), score()
        pairs = [(seconds(score), seconds(run.advance)) for _ in range(rounds)]
    scored, trained = (case.nodes + 1) * len(test[1]), case.nodes * case.batch
    return median(a for a, _ in pairs) / scored / (median(b for _, b in pairs) / trained)


def simulated(_: str) -> Callable[[], dict[str, float]]:
    run = simulation(CASES["a"], Workers())
    return lambda: {"seconds": seconds(run.advance), "private": private_memory()}


ROLES = {
    "comparison": comparison,
    "plain": plain_step,
    "memory": memory_at_1024,
    "gloo": gloo_node,
    "simulated": simulated,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="interleaved rounds; medians are compared")
    parser.add_argument("--only", default="a,b,c,d,e,f,g,h,i,j", help="items to measure")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--argument", default="", help=argparse.SUPPRESS)
    options = options_of(parser)
    if options.role:
        serve(ROLES[options.role](options.argument))
        return 0
    print(f"{'':<4}{'what':<44}{'ratio':>8}{'limit':>8}")
    measurements = []

    def show(measurement: Measurement) -> None:
        measurements.append(measurement)
        print(f"{measurement.what:<48}{measurement.value:>8.2f}  {measurement.judgement}", flush=True)

    wanted = options.only.split(",")
    for item, case in CASES.items():
        if item in wanted:
            rounds = max(10, options.rounds // 3) if case.nodes > 100 else options.rounds
            what = f"({item}) {case.title}, N={case.nodes}, batch {case.batch}"
            show(Measurement(what, Child("comparison", json.dumps([item, rounds])).only_answer(), limit=case.limit))
    if "i" in wanted:
        share = data_share(options.rounds)
        show(Measurement("(i) data and augmentation, share of a LeNet round", share, "share", 0.15))
    if "j" in wanted:
        scoring = evaluation_cost(options.rounds)
        show(Measurement("(j) evaluating a sample over training with one", scoring, limit=1.0))
    if "f" in wanted:
        answer = Child("memory", "").only_answer()
        over = answer["grown"] / answer["needed"]
        show(Measurement("(f) memory at N=1024 over what it must hold", over, limit=1.2))
    if "g" in wanted:
        cost = cost_per_node_round(options.rounds)
        show(Measurement("(g) cost per node-round, N=1024 over N=8, batch 16", cost, limit=1.3))
    if "h" in wanted:
        faster, smaller = against_processes(options.rounds)
        show(Measurement("(h) 8 processes over gloo: time over ours", faster, limit=1.4, at_most=False))
        show(Measurement("(h) 8 processes over gloo: memory over ours", smaller, limit=5.0, at_most=False))
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
