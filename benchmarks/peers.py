"""Gossamer against Decent-DP, the library that one would pick instead: the same training on the same real processes.

    python benchmarks/peers.py [--repeats 5] [--steps 400] [--lrs 0.05,0.02,0.01] [--json FILE]

Four processes over gloo, one thread each. Fashion-MNIST with 3 classes per node, LeNet, batches of 64, momentum 0.9.
Each repeat has its own seed, which draws the split, the first model and the batches, and goes through every step size
and every candidate in turn. Accuracy is that of each node's own model on the common test set: the mean over nodes, and
the worst node. Every candidate is shown at the step size with the best mean over the seeds. The time of a step covers
batch, gradient and optimizer: the median over the steps of a run, then over all runs; its processor time is that of
all threads of a process, the mean over a run. Both libraries are compared on the same graphs: the alternating ring,
which Decent-DP calls a ring (a node meets its two neighbours in turn), and the one-peer exponential graph; the ratio of
their steps is the median over runs that follow each other. On our own ring a node meets both neighbours in every step.
Tracking sends two vectors, Decent-DP one. Needs `pip install 'gossamer[peers]'` and the Fashion-MNIST files
(GOSSAMER_DATA says where they are).
"""

import argparse
import gc
import importlib.util
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from _measurements import Measurement, finish, options_of
from torch import Tensor, nn
from torch.nn import functional

import gossamer as gs
from gossamer.errors import GossamerError

NODES, CLASSES, BATCH, MOMENTUM = 4, 3, 64, 0.9
RING, ALTERNATING, ONE_PEER = "ring", "alternating ring", "one-peer exponential"
RIVAL = "Decent-DP"
Candidate = tuple[nn.Module, Callable[[Tensor], None], Callable[[], None]]
"""What a training loop calls: the model, the update after a loss, and the end."""


def with_gossamer(model: nn.Module, lr: float, *, method: str, topology: str | gs.topology.Topology) -> Candidate:
    optimizer = getattr(gs.optim, method)(model.parameters(), lr=lr, momentum=MOMENTUM, topology=topology)

    def update(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, update, optimizer.close


def with_decent_dp(model: nn.Module, lr: float, *, topology: str) -> Candidate:
    """Its hooks update the model during the backward pass, with the neighbour's parameters of the step before."""
    from decent_dp.ddp import DecentralizedDataParallel

    def sgd(named: list[tuple[str, Tensor]]) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for _, p in named], lr=lr, momentum=MOMENTUM)

    wrapped = DecentralizedDataParallel(model, sgd, topology=topology)

    def close() -> None:
        for work in wrapped._comm_ops:
            work.wait()

    return wrapped, Tensor.backward, close


def alternating_ring() -> gs.topology.Topology:
    """The ring as Decent-DP has it: each node meets one neighbour, in the next step the other."""
    first = [(i, i + 1) for i in range(0, NODES, 2)]
    second = [(i + 1, (i + 2) % NODES) for i in range(0, NODES, 2)]
    return gs.topology.in_turn([gs.topology.Graph(NODES, pairs) for pairs in (first, second)])


_tracking = partial(with_gossamer, method="MomentumTracking")
CANDIDATES: dict[str, Callable[[nn.Module, float], Candidate]] = {  # those that are compared follow each other
    f"Momentum Tracking, {ALTERNATING}": partial(_tracking, topology=alternating_ring()),
    f"{RIVAL}, {ALTERNATING}": partial(with_decent_dp, topology="ring"),
    f"Momentum Tracking, {ONE_PEER}": partial(_tracking, topology="one-peer-exponential"),
    f"{RIVAL}, {ONE_PEER}": partial(with_decent_dp, topology="one-peer-exp"),
    f"Momentum Tracking, {RING}": partial(_tracking, topology="ring"),
    f"DSGDm, {RING}": partial(with_gossamer, method="DSGDm", topology="ring"),
}


def train(make: Callable[[nn.Module, float], Candidate], lr: float, seed: int, steps: int) -> dict[str, Any]:
    """One run of this node: its accuracy on the test set, and the seconds and the processor time of a step."""
    data = gs.data.load("fashion-mnist")
    partition = gs.partition.k_class(nodes=NODES, k=CLASSES, seed=seed)
    mine = data.split(partition, holdout=0).partition.indices[dist.get_rank()]
    inputs, targets = data.normalization(data.train_inputs[mine]), data.train_targets[mine]
    torch.manual_seed(seed)
    model, update, close = make(gs.models.LeNet(data.sample_shape, data.num_classes), lr)
    drawing = torch.Generator().manual_seed(NODES * seed + dist.get_rank())
    batches = torch.randint(len(targets), (steps, BATCH), generator=drawing)
    dist.barrier()
    times = []
    used = time.process_time()
    for batch in batches:
        began = time.perf_counter()
        update(functional.cross_entropy(model(inputs[batch]), targets[batch]))
        times.append(time.perf_counter() - began)
    used = (time.process_time() - used) / steps
    close()
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(x).argmax(1) for x in data.normalization(data.test_inputs).split(1000)])
    accuracy = (found == data.test_targets).float().mean().item()
    return {"accuracy": accuracy, "seconds": median(times), "processor": used}


def node(rank: int, store: str, names: list[str], lrs: list[float], repeats: int, steps: int, out: str) -> None:
    """One of the processes: all runs, one after another; the first writes what all measured."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=NODES)
    rows = []
    for seed in range(repeats):
        for lr in lrs:
            for name in names:
                gc.collect()  # nothing of the run before is left
                mine = train(CANDIDATES[name], lr, seed, steps)
                told: list[Any] = [None] * NODES
                dist.all_gather_object(told, mine)
                rows.append({"name": name, "lr": lr, "seed": seed, "nodes": told})
                if rank == 0:
                    found = ", ".join(f"{100 * t['accuracy']:.1f}" for t in told)
                    step = 1e3 * median(t["seconds"] for t in told)
                    print(f"seed {seed}, step size {lr:g}, {name}: {found} %; {step:.1f} ms a step", flush=True)
    if rank == 0:
        Path(out).write_text(json.dumps(rows), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def measurements_of(rows: list[dict[str, Any]], names: list[str]) -> list[Measurement]:
    """Every candidate at its best step size, and the times of a step; limits where a rival is there."""
    best: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        by_lr: dict[float, list[dict[str, Any]]] = {}
        for row in rows:
            if row["name"] == name:
                by_lr.setdefault(row["lr"], []).append(row)
        best[name] = max(by_lr.values(), key=lambda chosen: mean(map(_mean, chosen)))
    steps, used = ({name: _step(rows, name, key) for name in names} for key in ("seconds", "processor"))
    found = []
    for name, chosen in best.items():
        accuracies = [_mean(row) for row in chosen]
        scatter = stdev(accuracies) if len(accuracies) > 1 else 0.0
        worst = mean(min(t["accuracy"] for t in row["nodes"]) for row in chosen)
        case = f"{name}, step size {chosen[0]['lr']:g}"
        found += [
            Measurement("accuracy, mean over nodes", mean(accuracies), "share", case=case),
            Measurement("its standard deviation over seeds", scatter, "share", case=case),
            Measurement("accuracy of the worst node", worst, "share", case=case),
            Measurement("time of a step", steps[name], "ms", case=case),
            Measurement("processor time of a step", used[name], "ms", case=case),
        ]
        print(
            f"{case:<50}{100 * mean(accuracies):>7.1f} ± {100 * scatter:<5.1f}worst {100 * worst:>5.1f} %"
            f"{steps[name]:>8.2f} ms, processor {used[name]:.2f} ms"
        )
    for graph in (ALTERNATING, ONE_PEER):
        if f"{RIVAL}, {graph}" in names:
            ratio = _ratio(rows, f"Momentum Tracking, {graph}", f"{RIVAL}, {graph}")
            found.append(Measurement(f"a step of Momentum Tracking over {RIVAL}'s, {graph}", ratio, limit=1.0))
            print(f"{found[-1].what}: {ratio:.2f}  {found[-1].judgement}")
    return found


def _ratio(rows: list[dict[str, Any]], name: str, rival: str) -> float:
    """Of the times of a step: the median over all seeds and step sizes, with each of which both ran in turn."""
    mine, theirs = ([row for row in rows if row["name"] == which] for which in (name, rival))
    return median(_step([a], name, "seconds") / _step([b], rival, "seconds") for a, b in zip(mine, theirs, strict=True))


def _step(rows: list[dict[str, Any]], name: str, key: str) -> float:
    """Milliseconds of a step: the median over the nodes of a run, then over all runs."""
    return median(1e3 * median(told[key] for told in row["nodes"]) for row in rows if row["name"] == name)


def _mean(row: dict[str, Any]) -> float:
    return mean(told["accuracy"] for told in row["nodes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lrs", default="0.05,0.02,0.01")
    options = options_of(parser)
    try:
        gs.data.load("fashion-mnist")
    except GossamerError as error:
        print(f"Skipped: {error}")
        return 0
    names = list(CANDIDATES)
    if importlib.util.find_spec("decent_dp") is None:
        print("Without Decent-DP, which is not installed: pip install 'gossamer[peers]'")
        names = [name for name in names if not name.startswith(RIVAL)]
    os.environ["LOGURU_LEVEL"] = "ERROR"  # Decent-DP logs every group that it makes
    with tempfile.TemporaryDirectory() as directory:
        store, out = Path(directory) / "store", Path(directory) / "rows.json"
        lrs = [float(lr) for lr in options.lrs.split(",")]
        mp.spawn(node, (str(store), names, lrs, options.repeats, options.steps, str(out)), nprocs=NODES)
        rows = json.loads(out.read_text(encoding="utf-8"))
    return finish(measurements_of(rows, names), options)


if __name__ == "__main__":
    sys.exit(main())
