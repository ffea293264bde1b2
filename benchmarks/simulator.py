"""The simulator against plain training, and its floating-point operations against matrix products.

    python benchmarks/simulator.py [--rounds 30] [--only a,b,...] [--json FILE]

(a)-(e) and (i) compare one simulated Momentum Tracking round of N nodes with one plain training step of a single model
(forward, backward, SGD with momentum) over the same N * batch samples. (i) is the network and batch of `make demo`. (j)
compares the evaluation of all models, per model and sample, with torch's own forward pass over the same samples. Each
side uses all cores, in a new process, because earlier work affects the heap; the plain model uses the same allocator
settings and channels-last weights. The sides alternate, and medians are compared. (f) is memory: the growth since
import at N = 1024. (g) is the cost per node-round at N = 1024 against N = 8. All are ratios, printed with their limits.

The second table has the operations per second (convolutions and linear layers, forward and backward) in GFLOP/s, for
the gradients of all nodes alone (with batches, weight decay and checks, without the method's step) and for the whole
round. The third side of the alternation is a large float32 matrix product on all cores (sgemm).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _measurements import Measurement, Table, finish
from _simulations import (
    BETA,
    CASES,
    LR,
    WEIGHT_DECAY,
    Case,
    Child,
    options_or_serve,
    private_memory,
    seconds,
    simulation,
)
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from gossamer import models
from gossamer.engine.hardware import Workers, keep_freed_memory

SHARE_OF_SGEMM = {"a": 0.60, "b": 0.60}
"""The least that the gradients alone must reach."""
SGEMM_SIZE = 2048
TEST_SAMPLES = 2000


def compare(item: str, rounds: int) -> dict[str, float]:
    """The median times of a simulated round, of its gradients, of the plain step and of sgemm; and the operations."""
    case, plain, sgemm = CASES[item], Child("plain", item), Child("sgemm")
    with Workers() as workers, tempfile.TemporaryDirectory() as directory:
        run = simulation(case, workers)
        log = (Path(directory) / "metrics.jsonl").open("w")

        def one_round() -> None:
            run.advance()
            if case.full:
                print(json.dumps({"round": run.round, "loss": run._meter.train_loss}), file=log, flush=True)

        sides: dict[str, Callable[[], float]] = {
            "round": partial(seconds, one_round, case.in_a_row),
            "plain": plain.ask,
            "gradients": partial(seconds, run._compute_gradients, case.in_a_row),
            "sgemm": sgemm.ask,
        }
        times = alternate(sides, rounds)
        log.close()
    plain.close(), sgemm.close()
    return {**times, "operations": case.nodes * case.batch * operations_per_sample(case)}


def alternate(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median seconds of each side; the first three rounds do not count."""
    taken = [{name: ask() for name, ask in sides.items()} for _ in range(3 + rounds)][3:]
    return {name: median(t[name] for t in taken) for name in sides}


def operations_per_sample(case: Case) -> float:
    """Floating-point operations of the forward and backward pass, as torch counts them."""
    model, inputs = case.model(case.shape, 10), torch.rand(2, *case.shape)
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(model(inputs), torch.tensor([0, 1])).backward()
    return counter.get_total_flops() / len(inputs)


def plain_model(item: str) -> nn.Module:
    keep_freed_memory()
    torch.manual_seed(0)
    return CASES[item].model(CASES[item].shape, 10).to(memory_format=torch.channels_last)


def plain_step(item: str) -> Callable[[], float]:
    """Forward, backward and SGD of one model over the samples of all nodes."""
    case, model = CASES[item], plain_model(item)
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=BETA, weight_decay=WEIGHT_DECAY, foreach=True)
    inputs = torch.rand(case.nodes * case.batch, *case.shape)
    targets = torch.arange(len(inputs)) % 10

    def step() -> None:
        sgd.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        sgd.step()

    return partial(seconds, step, case.in_a_row)


def plain_forward(item: str) -> Callable[[], float]:
    """The forward pass of one model over the test samples, 500 at a time."""
    model = plain_model(item).eval()
    batches = torch.rand(TEST_SAMPLES, *CASES[item].shape).split(500)

    @torch.inference_mode()
    def forward() -> None:
        for batch in batches:
            model(batch)

    return partial(seconds, forward)


def sgemm() -> Callable[[], float]:
    """The product of two large matrices."""
    left, right = torch.rand(2, SGEMM_SIZE, SGEMM_SIZE)
    product = torch.empty_like(left)
    return partial(seconds, partial(torch.mm, left, right, out=product))


def compare_evaluation(item: str, rounds: int) -> float:
    """The time to evaluate a model on a sample over that of the plain forward pass."""
    case, plain = CASES[item], Child("forward", item)
    with Workers() as workers:
        run = simulation(case, workers)
        run.advance()
        test = torch.rand(TEST_SAMPLES, *case.shape), torch.arange(TEST_SAMPLES) % 10
        score = partial(seconds, partial(run.gradients.scores, test, workers))
        times = alternate({"scores": score, "forward": plain.ask}, rounds)
    plain.close()
    scored_models = case.nodes + 1  # the averaged one too
    return times["scores"] / scored_models / times["forward"]


def memory_at_1024() -> Callable[[], dict[str, float]]:
    """Memory growth of a run with 1,024 LeNet nodes, and the least it needs."""
    before = private_memory()

    def measure() -> dict[str, float]:
        case = Case("", models.LeNet, (1, 28, 28), 1024, 16)
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
        few, many = (simulation(Case("", models.LeNet, (1, 28, 28), n, 16), workers) for n in (8, 1024))

        def eight_many_times() -> None:
            for _ in range(128):
                few.advance()

        few.advance(), many.advance()
        pairs = [(seconds(many.advance), seconds(eight_many_times)) for _ in range(max(3, rounds // 6))]
    return median(a for a, _ in pairs) / median(b for _, b in pairs)


ROLES: dict[str, Callable[..., Callable[[], Any]]] = {
    "comparison": lambda item, rounds: partial(compare, item, rounds),
    "evaluation": lambda item, rounds: partial(compare_evaluation, item, rounds),
    "plain": plain_step,
    "forward": plain_forward,
    "sgemm": sgemm,
    "memory": memory_at_1024,
}


def speed(item: str, times: dict[str, float]) -> list[Measurement]:
    """A row of the second table: GFLOP/s of the gradients, the round and sgemm, and the first two over the last."""
    rates = {side: times["operations"] / times[side] / 1e9 for side in ("gradients", "round")}
    peak = 2 * SGEMM_SIZE**3 / times["sgemm"] / 1e9
    least = SHARE_OF_SGEMM.get(item)
    return [
        *(Measurement(f"({item}) {side}", rate, "GFLOP/s") for side, rate in {**rates, "sgemm": peak}.items()),
        Measurement(f"({item}) gradients over sgemm", rates["gradients"] / peak, limit=least, at_most=False),
        Measurement(f"({item}) round over sgemm", rates["round"] / peak),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="a,b,c,d,e,f,g,i,j", help="items to measure")
    options = options_or_serve(parser, ROLES)
    table = Table(60)
    speeds: list[list[Measurement]] = []
    wanted, rounds = options.only.split(","), options.rounds
    for item, case in CASES.items():
        if item in wanted:
            fewer = max(10, rounds // 3) if case.nodes > 100 else rounds
            times = Child("comparison", item, fewer).only_answer()
            what = f"({item}) {case.title}, N={case.nodes}, batch {case.batch}"
            table.show(what, times["round"] / times["plain"], case.limit)
            speeds.append(speed(item, times))
    if "j" in wanted:
        for item in ("a", "b"):
            cost = Child("evaluation", item, rounds).only_answer()
            table.show(f"(j) evaluating a sample over torch's forward pass, ({item})", cost, 0.45)
    if "f" in wanted:
        answer = Child("memory").only_answer()
        table.show("(f) memory at N=1024 over what it must hold", answer["grown"] / answer["needed"], 1.2)
    if "g" in wanted:
        table.show("(g) cost per node-round, N=1024 over N=8, batch 16", cost_per_node_round(rounds), 1.3)
    print(
        f"\n{'GFLOP/s':<8}{'gradients':>12}{'round':>12}{'sgemm':>12}{'over sgemm:':>16}{'gradients':>12}{'round':>10}"
    )
    for item, row in zip((i for i in CASES if i in wanted), speeds, strict=True):
        gradients, whole, peak, share, share_of_round = (m.value for m in row)
        line = f"({item}){gradients:>17.1f}{whole:>12.1f}{peak:>12.1f}{share:>28.2f}{share_of_round:>10.2f}"
        print(f"{line}  {row[3].judgement}".rstrip())
        table += row
    return finish(table, options)


if __name__ == "__main__":
    sys.exit(main())
