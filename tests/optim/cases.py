"""What the processes of these tests do. Each function runs in every process with its rank."""

import copy
import io
import logging
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import gossamer.network.distributed as cases_wire
import gossamer.network.waiting as waiting
from gossamer import methods, optim, topology
from gossamer.errors import GossamerError
from gossamer.methods import motef
from gossamer.network import DistributedNetwork, wire
from gossamer.optim import DecentralizedOptimizer, MomentumTracking, average_, averaged
from gossamer.optim.metrics_server import Probe
from gossamer.topology import Topology
from tests.optim.tasks import LONG, TASKS, WEIGHT_DECAY, combinations, compressed, flat, long_run, train, train_all

MLP = TASKS["float32"]
RING = topology.ring(4)
PATIENCE = 20.0


def trajectories(rank: int, n: int) -> dict[str, dict[str, Tensor]]:
    """All methods on all graphs, one after the other; the traces by name."""
    return {
        f"{name} on {where}": train_all(
            getattr(optim, name.partition(" ")[0]), graph, timeout=PATIENCE, **compressed(name)
        )
        for name, where, graph in combinations(n)
    }


def long_vectors(rank: int) -> list[Tensor]:
    """The end of every run of `LONG`."""
    net = DistributedNetwork(RING, timeout=PATIENCE)
    ends = [long_run(methods.get(name, compress=spec), dtype, net, rank) for name, spec, dtype in LONG]
    net.drain()
    return ends


def run_all(rank: int, names: list[str]) -> dict[str, Any]:
    """Several of the cases below in one launch. What a case raises becomes its result."""
    results: dict[str, Any] = {}
    for name in names:
        try:
            results[name] = globals()[name](rank)
        except Exception:
            results[name] = traceback.format_exc()
    return results


class Node:
    """A model on this node's data, and the steps of an ordinary loop."""

    def __init__(
        self, rank: int, make: Callable[..., DecentralizedOptimizer] = MomentumTracking, **options: Any
    ) -> None:
        self.model = MLP.model()
        graph: Topology = options.pop("topology", RING)
        options = {"lr": 0.02, "weight_decay": WEIGHT_DECAY, "timeout": PATIENCE, **options}
        self.optimizer = make(self.model.parameters(), topology=graph, **options)
        self.data = [part[self.optimizer.node] for part in MLP.data(graph.n)]

    def backward(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.model(*self.data)
        loss.backward()
        return loss

    def step(self, rounds: int = 1) -> Tensor:
        for _ in range(rounds):
            self.backward()
            self.optimizer.step()
        return flat(self.model)


def said(action: Callable[[], Any]) -> str:
    """The sentence of the error that `action` raises; empty if it raises none."""
    try:
        action()
    except GossamerError as error:
        return str(error)
    return ""


# Exactness ------------------------------------------------------------------------------------------------------------


def overlap(rank: int) -> dict[str, list[Tensor]]:
    return {
        make.__name__: [train(rank, MLP, make, RING, rounds=10, overlap=flag)[0] for flag in (True, False)]
        for make in (optim.MomentumTracking, optim.GradientTracking, optim.ABm, optim.GTAdam, optim.MoTEF)
    }


def other_ranks(rank: int) -> dict[str, list[tuple[int, Tensor]]]:
    """The same run with node i on rank i and with the nodes on other ranks."""
    results = {}
    for make, graph in ((MomentumTracking, RING), (optim.AllReduceSGDm, RING), (optim.RelaySumM, topology.star(4))):
        results[make.__name__] = []
        for node in (rank, (rank + 1) % 4 if rank < 3 else 0):
            trace, optimizer = train(rank, MLP, make, graph, rounds=8, node=node)
            results[make.__name__].append((optimizer.node, trace))
    return results


def coalesced(rank: int) -> list[Tensor]:
    """One call that starts all transfers, as NCCL wants it, does the same."""
    results = []
    for together in (False, True):
        node = Node(rank)
        node.optimizer.network.messenger.coalesces = together
        results.append(node.step(5))
    return results


def probed(rank: int) -> tuple[float, float]:
    """The consensus distance that is measured in a round, and what it is by definition."""
    torch.manual_seed(rank)
    parameters = [torch.nn.Parameter(torch.randn(5, dtype=d)) for d in (torch.float32, torch.float64)]
    optimizer = MomentumTracking(parameters, lr=0.1, topology=RING)
    probe = optimizer.network.messenger.probe = Probe(after=3)
    sent = []
    for _ in range(6):
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer.step()
        sent.append(torch.cat([p.detach().double() for p in parameters]))
    rows = [torch.empty_like(sent[2]) for _ in range(4)]
    dist.all_gather(rows, sent[2])
    optimizer.close()
    mixed = torch.as_tensor(RING.at(0).dense()[rank]) @ torch.stack(rows)
    return probe.squared, float((sent[2] - mixed).square().sum())


def bf16_wire(rank: int) -> dict[str, Any]:
    node = Node(rank, wire="bf16")
    exact = Node(rank)
    start = flat(node.model)
    moved = torch.zeros_like(start)
    for _ in range(60):
        node.step()
        exact.step()
        moved += 0.02 * _whole(node.optimizer, "signal")
    return {
        "x": flat(node.model),
        "exact": flat(exact.model),
        "start": start,
        "moved": moved,
        "y": _whole(node.optimizer, "y"),
        "u": _whole(node.optimizer, "signal"),
        "exact y": _whole(exact.optimizer, "y"),
        "exact u": _whole(exact.optimizer, "signal"),
        "bytes": (node.optimizer.stats()["bytes_sent"], exact.optimizer.stats()["bytes_sent"]),
        "relay": said(lambda: Node(rank, optim.RelaySum, topology=topology.chain(4), wire="bf16").step()),
    }


def compressed_messages(rank: int) -> dict[str, Any]:
    """As many bytes as declared; and where sums are made again from whole vectors, the same trajectory."""
    options = {"init": "zero", "compress": "quantize:bits=4"}
    node = Node(rank, optim.MoTEF, **options)
    trace = node.step(5)
    stats = node.optimizer.stats()
    usual, motef.REBUILD = motef.REBUILD, 2
    try:
        rebuilt = Node(rank, optim.MoTEF, **options)
        gap = float((rebuilt.step(5) - trace).abs().max())
    finally:
        motef.REBUILD = usual
    return {
        "bytes": stats["bytes_sent"] / stats["messages_sent"],
        "dim": len(trace),
        "gap": gap,
        "longer": rebuilt.optimizer.stats()["bytes_sent"] - stats["bytes_sent"],
        "bf16": said(lambda: Node(rank, optim.MoTEF, wire="bf16", **options).step()),
    }


def _whole(optimizer: DecentralizedOptimizer, name: str) -> Tensor:
    return torch.cat([entry[name].reshape(-1) for entry in optimizer.state.values()]).clone()


def network_verbs(rank: int) -> dict[str, Any]:
    net = DistributedNetwork(topology.one_peer_exponential(4), timeout=PATIENCE)
    own = torch.full((3,), float(rank), dtype=torch.float64)
    pending = net.mix(own, 10 * own, round=1)
    own.zero_()  # the caller may go on at once
    again = pending.wait()
    chain = DistributedNetwork(topology.chain(4), timeout=PATIENCE)
    outbox = chain.spread(torch.tensor([float(rank)])) * 10
    (inbox,) = chain.exchange(outbox, round=0).wait()
    os.environ["GOSSAMER_NODE"] = str(3 - rank)
    by_environment = DistributedNetwork(RING).node
    del os.environ["GOSSAMER_NODE"]
    return {
        "mixed": [v.clone() for v in again],
        "same": all(a is b for a, b in zip(again, pending.wait(), strict=True)),
        "average": chain.average(torch.arange(5.0) + rank, round=0),
        "inbox": inbox,
        "collected": chain.collect(inbox),
        "by environment": by_environment,
        "stats": net.stats(),
        "wrong size": said(lambda: DistributedNetwork(topology.ring(5))),
        "wrong wire": said(lambda: DistributedNetwork(RING, wire="int8")),  # type: ignore[arg-type]
        "wrong timeout": said(lambda: DistributedNetwork(RING, timeout=0)),
        "wrong node": said(lambda: DistributedNetwork(RING, node=7)),
        "wrong label": said(lambda: DistributedNetwork(RING, node="paris")),
        "same node": said(lambda: DistributedNetwork(RING, node=0, timeout=PATIENCE).join()),
        "threads": _threads(),
    }


def _threads() -> list[tuple[str, tuple[bool, int]]]:
    """This process's threads on Linux: the name; whether it lets others finish first, and how nice it is."""
    tasks = Path("/proc/self/task")
    return [
        (
            (task / "comm").read_text().strip(),
            (
                os.sched_getscheduler(int(task.name)) == os.SCHED_BATCH,
                os.getpriority(os.PRIO_PROCESS, int(task.name)),
            ),
        )
        for task in (tasks.iterdir() if tasks.is_dir() else [])
    ]


# The life of an optimizer ---------------------------------------------------------------------------------------------


def saved_and_loaded(rank: int) -> dict[str, Any]:
    """Stop in the middle, load into new objects (on another rank), go on: the same bits."""
    results = {}
    makes = (MomentumTracking, optim.DSGD, optim.MoTEF, optim.KGT)
    for make, graph in (*((make, RING) for make in makes), (optim.RelaySumM, topology.chain(4))):
        whole = Node(rank, make, topology=graph).step(8)
        node = Node(rank, make, topology=graph)
        node.step(4)
        file = io.BytesIO()
        torch.save({"model": node.model.state_dict(), "optimizer": node.optimizer.state_dict()}, file)
        everybody: list[bytes] = [b""] * 4
        dist.all_gather_object(everybody, file.getvalue())
        here = 3 - rank
        saved = torch.load(io.BytesIO(everybody[here]), weights_only=True)
        other = Node(rank, make, topology=graph, node=here)
        other.optimizer.load_state_dict(saved["optimizer"])
        other.model.load_state_dict(saved["model"])
        results[make.__name__] = (rank, whole, here, other.step(4), other.optimizer.round)
    return results


def forgotten_model(rank: int) -> list[str]:
    node = Node(rank)
    node.step(3)
    other = Node(rank)
    other.optimizer.load_state_dict(node.optimizer.state_dict())
    refused = said(other.step)
    other.optimizer.resend()
    other.step()
    rivals = [Node(rank, make).optimizer for make in (optim.DSGD, optim.GTAdam)]
    return [refused, *(said(lambda o=o: o.load_state_dict(node.optimizer.state_dict())) for o in rivals)]  # type: ignore[misc]


def checkpoint(rank: int) -> dict[str, Any]:
    """torch.distributed.checkpoint with a key per node keeps every node's values and never makes a step."""
    node = Node(rank, optim.DSGD)
    before = flat(node.model)
    get_optimizer_state_dict(node.model, node.optimizer)
    untouched = torch.equal(before, flat(node.model)) and node.optimizer.round == 0
    tracking = Node(rank)
    tracking.step(3)
    directory = [tempfile.mkdtemp()]
    dist.broadcast_object_list(directory, src=0)
    state = {f"node{rank}": {"model": tracking.model.state_dict(), "optimizer": tracking.optimizer.state_dict()}}
    dcp.save(state, checkpoint_id=directory[0])
    other = Node(rank)
    loaded = {f"node{rank}": {"model": other.model.state_dict(), "optimizer": other.optimizer.state_dict()}}
    dcp.load(loaded, checkpoint_id=directory[0])
    other.model.load_state_dict(loaded[f"node{rank}"]["model"])
    other.optimizer.load_state_dict(loaded[f"node{rank}"]["optimizer"])
    same = torch.equal(other.step(3), tracking.step(3))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(directory[0])
    return {"untouched": untouched, "same": same}


def short_parameters(rank: int) -> dict[str, Any]:
    """bf16 parameters: the state and x itself are float32, and stay so through a checkpoint."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2).bfloat16()
    model.bias.data = model.bias.data.float()
    optimizer = MomentumTracking(model.parameters(), lr=1e-3, topology=RING, timeout=PATIENCE)
    inputs = torch.full((1, 4), 1.0 + rank)

    def step(model: nn.Linear, optimizer: DecentralizedOptimizer) -> None:
        optimizer.zero_grad()
        nn.functional.linear(inputs, model.weight.float(), model.bias).square().sum().backward()
        optimizer.step()

    for _ in range(3):
        step(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    twin = copy.deepcopy(model)
    other = MomentumTracking(twin.parameters(), lr=1e-3, topology=RING, timeout=PATIENCE)
    other.load_state_dict(saved)
    for _ in range(3):
        step(model, optimizer)
        step(twin, other)
    types = {v.dtype for e in other.state.values() for v in e.values() if isinstance(v, Tensor)}
    master = other.state[twin.weight]["x"]
    return {
        "types": [str(t) for t in types],
        "same": torch.equal(model.weight, twin.weight) and torch.equal(model.bias, twin.bias),
        "finer": not torch.equal(master, master.bfloat16().float()) and torch.equal(master.bfloat16(), twin.weight),
    }


def overflow(rank: int) -> dict[str, Any]:
    """An overflow on rank 2 in round 1: it still exchanges, and is counted."""
    node = Node(rank)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    clean = Node(rank)
    for r in range(4):
        node.optimizer.zero_grad()
        scaler.scale(node.model(*node.data)).backward()
        if r == 1 and rank == 2:
            next(node.model.parameters()).grad.fill_(float("inf"))
        if r == 3:
            scaler.unscale_(node.optimizer)
        scaler.step(node.optimizer)
        scaler.update()
        clean.step()
    return {
        "overflows": node.optimizer.stats()["overflows"],
        "finite": bool(flat(node.model).isfinite().all()),
        "gap": float((flat(node.model) - flat(clean.model)).abs().max()),
        "scale": scaler.get_scale(),
    }


def growing(rank: int) -> dict[str, Any]:
    """Parameters that are frozen, come later, have no gradient, or leave: always the same message on all nodes."""
    torch.manual_seed(0)
    first, second, third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
    second.requires_grad_(False)
    torch.manual_seed(rank)
    third = nn.Linear(3, 1)  # different on every node: made equal when it joins
    inputs = torch.randn(8, 3) + rank
    optimizer = MomentumTracking([*first.named_parameters(), *second.named_parameters()], lr=0.01, topology=RING)
    optimizer.network.waiting.timeout = waiting.timedelta(seconds=PATIENCE)
    frozen = flat(second)

    def step(use_third: bool = False) -> None:
        optimizer.zero_grad()
        hidden = torch.tanh(second(first(inputs)))
        (third(hidden) if use_third else hidden).square().mean().backward()
        if rank == 1:
            first.bias.grad = None  # a gradient that only this node lacks
        optimizer.step()

    step()
    step()
    still = torch.equal(frozen, flat(second))
    optimizer.add_param_group({"params": [("w", third.weight), ("b", third.bias)], "lr": 0.02, "momentum": 0.5})
    step(use_third=True)
    joined = flat(third)
    second.requires_grad_(True)
    for _ in range(3):
        step(use_third=True)
    thawed = not torch.equal(frozen, flat(second))
    first.requires_grad_(False)
    stopped = flat(first)
    step(use_third=True)
    step(use_third=True)
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    step(use_third=True)
    return {
        "frozen": still,
        "joined": joined,
        "thawed": thawed,
        "stopped": torch.equal(stopped, flat(first)),
        "born": sorted({entry["born"] for entry in optimizer.state.values()}),
        "rounds": [group["round"] for group in optimizer.param_groups],
        "finite": all(bool(flat(m).isfinite().all()) for m in (first, second, third)),
    }


def _layers(rank: int) -> tuple[Node, list[list[nn.Parameter]]]:
    """A node, and the parameters of each of its two layers."""
    node = Node(rank)
    return node, [list(layer.parameters()) for layer in node.model.net if isinstance(layer, nn.Linear)]


def _step_all(node: Node, optimizers: list[DecentralizedOptimizer], rounds: int) -> Tensor:
    for _ in range(rounds):
        node.backward()
        for optimizer in optimizers:
            optimizer.step()
    return flat(node.model)


def own_groups(rank: int) -> dict[str, Tensor]:
    """Groups with their own lr, weight decay and momentum equal separate optimizers with these settings."""
    settings = [
        {"lr": 0.02, "weight_decay": 1e-3, "momentum": 0.9},
        {"lr": 0.005, "weight_decay": 0.0, "momentum": 0.5},
    ]

    def run(together: bool) -> Tensor:
        node, halves = _layers(rank)
        groups = [{"params": p, **s} for p, s in zip(halves, settings, strict=True)]
        parts = [groups] if together else [[g] for g in groups]
        return _step_all(node, [MomentumTracking(p, lr=1.0, topology=RING, timeout=PATIENCE) for p in parts], rounds=6)

    return {"together": run(True), "apart": run(False)}


def late_group(rank: int) -> dict[str, Tensor]:
    """A parameter group that is added in round 2 starts as an optimizer of its own that is made then."""

    def run(together: bool) -> Tensor:
        node, (first, second) = _layers(rank)
        options: dict[str, Any] = {"lr": 0.02, "topology": RING, "timeout": PATIENCE}
        optimizers: list[DecentralizedOptimizer] = [MomentumTracking(first, **options)]
        _step_all(node, optimizers, rounds=2)
        if together:
            optimizers[0].add_param_group({"params": second})
        else:
            optimizers.append(MomentumTracking(second, **options))
        return _step_all(node, optimizers, rounds=3)

    return {"together": run(True), "apart": run(False)}


def written_parameters(rank: int) -> dict[str, Any]:
    results = {}
    for how, write in {"copy": lambda p: p.copy_(p * 0.5), "part": lambda p: p[:1].mul_(0.5)}.items():
        node = Node(rank)
        node.step(2)
        with torch.no_grad():
            for p in node.model.parameters():
                write(p)
        refused = said(node.step)
        node.optimizer.resend()
        results[how] = (refused, bool(node.step(2).isfinite().all()))
    node = Node(rank)
    node.step(2)
    with torch.no_grad():
        node.model.net[0].weight[-1, -1] += 1.0
    with averaged(node.model):
        pass
    results["averaged"] = said(node.step)
    dsgd = Node(rank, optim.DSGD, lr=0.0)
    dsgd.step()
    with torch.no_grad():
        for p in dsgd.model.parameters():
            p.data.fill_(float(rank))
    results["mixed"] = dsgd.step()
    return results


def averages(rank: int) -> dict[str, Any]:
    """average_ and averaged, with BatchNorm's buffers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = MomentumTracking(model.parameters(), lr=0.05, topology=RING, timeout=PATIENCE)
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(16, 3, generator=generator) + rank

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    own, buffers = flat(model), model[1].running_mean.clone()
    with averaged(model):
        during, mean_during = flat(model), model[1].running_mean.clone()
    back = torch.equal(own, flat(model)) and torch.equal(buffers, model[1].running_mean)
    step()
    before, statistics = flat(model), model[1].running_mean.clone()
    average_(model)
    after = flat(model)
    step()
    plain = nn.Linear(1, 1)
    with torch.no_grad():
        plain.weight.fill_(float(rank))
    plain.register_buffer("mask", torch.tensor([-torch.inf, torch.nan if rank == 1 else float(rank), 2e38]))
    return {
        "own": own, "during": during, "back": back, "before": before, "after": after,
        "running": (buffers, mean_during, statistics, model[1].num_batches_tracked),
        "finite": bool(flat(model).isfinite().all()),
        "without optimizer": average_(plain).weight.item(), "mask": plain.mask,
    }  # fmt: skip


# The start ------------------------------------------------------------------------------------------------------------


def unequal_start(rank: int) -> dict[str, Any]:
    node = Node(rank, lr=0.0, weight_decay=0.0)
    with torch.no_grad():
        for p in node.model.parameters():
            p.add_(float(rank))
    wanted = flat(MLP.model())
    at_start = node.step()
    return {"equal": torch.equal(at_start, wanted)}


def identical_gradients(rank: int) -> dict[str, str]:
    def attempt(inputs: float, **options: Any) -> str:
        model = nn.Linear(2, 1, bias=False)
        optimizer = optim.DSGD(model.parameters(), lr=0.1, topology="ring", timeout=PATIENCE, **options)
        model(torch.full((1, 2), inputs)).sum().backward()
        return said(optimizer.step)

    return {
        "same": attempt(1.0),
        "different": attempt(1.0 + rank),
        "zero": attempt(0.0),
        "meant": attempt(1.0, equal_gradients="allow"),
    }


def disagreements(rank: int) -> dict[str, str]:
    odd = rank == 2

    def attempt(**options: Any) -> str:
        return said(lambda: Node(rank, **options).step())

    def shapes() -> None:
        model = nn.Linear(3, 5 if odd else 4)
        MomentumTracking(model.named_parameters(), lr=0.1, topology=RING, timeout=PATIENCE).step()

    def rounds() -> None:
        node = Node(rank)
        if odd:
            node.optimizer.param_groups[0]["round"] = 7
        node.step()

    return {
        "graph": attempt(topology=topology.star(4) if odd else RING),
        "lr": attempt(lr=0.1 if odd else 0.02),
        "momentum": attempt(momentum=0.5 if odd else 0.9),
        "method": attempt(make=optim.ABm if odd else MomentumTracking),
        "wire": attempt(wire="bf16" if odd else None),
        "shapes": said(shapes),
        "rounds": said(rounds),
        "node_weight": attempt(node_weight=None if odd else 1.0),
    }


def weighted(rank: int) -> list[Tensor]:
    """Weights by data size equal a loss that is scaled accordingly."""
    sizes = [10.0, 20.0, 30.0, 40.0]
    node = Node(rank, node_weight=np.int64(sizes[rank]), node=np.int64(rank), weight_decay=0.1)
    scaled = Node(rank, weight_decay=0.1)
    for _ in range(4):
        node.step()
        scaled.optimizer.zero_grad()
        (scaled.model(*scaled.data) * (4 * sizes[rank] / 100)).backward()
        scaled.optimizer.step()
    return [flat(node.model), flat(scaled.model)]


def wrapped_later(wrap: Callable[[nn.Module], nn.Module], **options: Any) -> str:
    """What the first step says to a model that was wrapped after the optimizer was made."""
    plain = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    optimizer = MomentumTracking(plain.parameters(), lr=0.1, topology="ring", timeout=PATIENCE, **options)
    model = wrap(plain)
    model(torch.full((1, 2), 1.0 + dist.get_rank())).sum().backward()
    answer = said(optimizer.step)
    optimizer.close()
    return answer


def wrapped(rank: int) -> dict[str, str]:
    """What averages gradients over the nodes is refused, before and after the optimizer is made."""
    model = DistributedDataParallel(nn.Linear(2, 1))
    inside = dist.new_group([rank], use_local_synchronization=True)
    alone = DistributedDataParallel(nn.Linear(2, 1), process_group=inside)
    whole = init_device_mesh("cpu", (4,))
    return {
        "outside": said(lambda: optim.DSGD(model.parameters(), lr=0.1, topology="ring", model=model)),
        "inside": said(lambda: optim.DSGD(alone.parameters(), lr=0.1, topology="ring", model=alone)),
        "no graph": said(lambda: optim.DSGD(model.parameters(), lr=0.1)),
        "DDP later": wrapped_later(DistributedDataParallel),
        "DDP meant": wrapped_later(DistributedDataParallel, equal_gradients="allow"),
        "DDP inside": wrapped_later(lambda m: DistributedDataParallel(m, process_group=inside)),
        "FSDP later": wrapped_later(lambda m: fully_shard(m, mesh=whole)),
    }


def first_fsdp(rank: int) -> str:
    cpu = torch.device("cpu")
    return wrapped_later(lambda m: FullyShardedDataParallel(m, use_orig_params=True, device_id=cpu))


def two_by_two(rank: int) -> dict[str, Any]:
    """Two nodes of two processes each: DDP or FSDP2 inside a node, gossip between them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("node", "inside"))
    node, part = divmod(rank, 2)
    generator = torch.Generator().manual_seed(5)
    inputs, targets = (torch.randn(2, 8, k, generator=generator) for k in (3, 1))
    inputs[1] += 1

    def run(wrap: Callable[[nn.Module], nn.Module], rows: slice, **options: Any) -> Tensor:
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        model = wrap(plain)
        optimizer = MomentumTracking(model.parameters(), lr=0.05, timeout=PATIENCE, **options)
        for _ in range(5):
            optimizer.zero_grad()
            (model(inputs[node, rows]) - targets[node, rows]).square().mean().backward()
            optimizer.step()
        parameters = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in plain.parameters()]
        optimizer.state_dict()
        optimizer.close()
        return torch.cat([p.detach().reshape(-1) for p in parameters])

    mine = slice(4 * part, 4 * part + 4)
    between = mesh["node"]
    return {
        "node": node,
        "whole": run(lambda m: m, slice(None), topology="ring", group=between),
        "ddp": run(
            lambda m: DistributedDataParallel(m, process_group=mesh["inside"].get_group()), mine,
            topology="ring", group=between.get_group(),
        ),
        "fsdp": run(lambda m: fully_shard(m, mesh=mesh["inside"]), mine, topology="ring", group=between),
        "mesh": said(lambda: MomentumTracking(nn.Linear(1, 1).parameters(), lr=0.1, topology="ring", group=mesh)),
    }  # fmt: skip


# Faults ---------------------------------------------------------------------------------------------------------------


def pair(rank: int, make: Callable[..., DecentralizedOptimizer] = MomentumTracking, **options: Any) -> Node:
    """One of two nodes. Every case has its own process group, because a refused message spoils it."""
    return Node(rank, make, **{"topology": topology.ring(2), "group": dist.new_group([0, 1]), **options})


def other_schedule(rank: int) -> str:
    """One node changes its step size in round 3; the others notice."""
    node = pair(rank)
    node.step(3)
    if rank == 1:
        node.optimizer.param_groups[0]["lr"] = 0.5
    return said(lambda: node.step(2))


def lonely_message(rank: int) -> str:
    node = pair(rank)
    node.step(2)
    if rank == 1:
        node.optimizer._buckets[0].drain()
        node.optimizer.network.messenger._serial += 1
    return said(lambda: node.step(2))


def lonely_resend(rank: int) -> str:
    """Only node 1 calls resend()."""
    node = pair(rank)
    node.step(2)
    return said(lambda: node.optimizer.resend() if rank == 1 else node.step(3))


def lonely_freeze(rank: int) -> dict[str, str]:
    """Only node 1 freezes a parameter."""
    results = {}
    for make, graph in (
        (MomentumTracking, topology.ring(2)),
        (optim.DSGD, topology.ring(2)),
        (optim.RelaySum, topology.chain(2)),
        (optim.AllReduceSGDm, topology.ring(2)),
    ):
        node = pair(rank, make, topology=graph)
        node.step(2)
        if rank == 1:
            next(node.model.parameters()).requires_grad_(False)
        results[make.__name__] = said(lambda: node.step(3))  # noqa: B023
    return results


def stops_early(rank: int) -> list[str]:
    node = Node(rank, topology=topology.ring(2))
    node.step(3)
    if rank == 1:
        node.optimizer.network.drain()  # else it is luck whether the last message has left
        os._exit(0)
    first = said(lambda: node.step(3))
    return [first, said(node.step), said(node.optimizer.network.close)]


def silent(rank: int) -> dict[str, Any]:
    waiting.SLOW = 0.3
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gossamer").addHandler(handler)
    graph = topology.from_edges([("oslo", "rome")])
    node = pair(rank, topology=graph, node="oslo" if rank == 0 else "rome", timeout=1.2 if rank == 0 else 20.0)
    node.step(2)
    if rank == 1:
        time.sleep(2)
        waiting.unclosed.clear()  # nobody is left to part from
        return {}
    return {"said": said(lambda: node.step(2)), "log": lines, "stats": node.optimizer.stats()}


def absent(rank: int) -> str:
    """Rank 1 never makes a step."""
    node = pair(rank, timeout=0.5)
    if rank == 1:
        time.sleep(1)
        return ""
    return said(node.step)


def ring_of_five(rank: int, make: Callable[..., DecentralizedOptimizer] = MomentumTracking, **options: Any) -> Node:
    """One of five nodes; node 2 is the one at fault, and nodes 0 and 4 are not its neighbours."""
    return Node(rank, make, **{"topology": topology.ring(5), "group": dist.new_group(range(5)), **options})


def not_finite(rank: int) -> dict[str, Any]:
    """The gradient of node 2 is no number in round 3."""
    results: dict[str, Any] = {}
    for make, graph, bad in (
        (MomentumTracking, topology.ring(5), float("nan")),
        (optim.DSGD, topology.ring(5), float("inf")),
        (optim.RelaySum, topology.chain(5), float("-inf")),
        (optim.AllReduceSGDm, topology.ring(5), float("nan")),
        (MomentumTracking, topology.one_peer_exponential(5), float("nan")),
    ):
        node = ring_of_five(rank, make, topology=graph)
        groups = [{"params": [p]} for p in node.model.parameters()]
        node.optimizer = make(groups, lr=0.02, topology=graph, group=node.optimizer.network.group, timeout=PATIENCE)
        node.step(3)
        node.backward()
        if rank == 2:
            node.optimizer.param_groups[1]["params"][0].grad[0] = bad
        began = time.monotonic()
        sentence = said(lambda: (node.optimizer.step(), node.step(9)))  # noqa: B023
        results[f"{make.__name__} on {graph.name}"] = (sentence, time.monotonic() - began, flat(node.model))
    return results


def overflowing(rank: int) -> str:
    """Node 2 has finite gradients whose momentum is not; those of node 1 are large, and their sum is not finite."""
    node = ring_of_five(rank, optim.DSGDm, weight_decay=0.0, lr=1e-38)

    def step() -> None:
        for p in node.model.parameters():
            p.grad = torch.full_like(p, {1: 1e35, 2: 2e38}.get(rank, 0.0))
        node.optimizer.step()

    return said(lambda: [step() for _ in range(9)])


def skipped(rank: int) -> dict[str, Any]:
    """The same with nonfinite="skip", and the run in which that gradient was 0."""
    results = []
    for bad in (0.0, float("nan")):
        node = ring_of_five(rank, nonfinite="skip")
        node.step(3)
        node.backward()
        if rank == 2:
            for p in node.model.parameters():
                p.grad = torch.full_like(p, bad)
        node.optimizer.step()
        results.append(node.step(3))
    return {"same": torch.equal(*results), "skipped": node.optimizer.stats()["skipped"]}


def poisoned(rank: int) -> dict[str, str]:
    """Node 2 sends what is not finite without looking, as it is or compressed."""
    results = {}
    for make in (optim.DSGD, optim.ChocoSGD):
        node = ring_of_five(rank, make)
        node.step(2)
        if rank == 2:
            cases_wire.is_finite = lambda tensor: True
            with torch.no_grad():
                next(node.model.parameters()).fill_(float("nan"))
        try:
            results[make.__name__] = said(lambda: node.step(9))  # noqa: B023
        finally:
            cases_wire.is_finite = wire.is_finite
    return results


def root_of_silence(rank: int) -> tuple[str, float]:
    """Node 2 does not answer in round 3; all others have waited for each other as long as for it."""
    node = ring_of_five(rank, timeout=60.0 if rank == 2 else 2.0)
    node.step(3)
    if rank == 2:
        time.sleep(6)
        return said(lambda: node.step(3)), 0.0
    began = time.monotonic()
    return said(lambda: node.step(5)), time.monotonic() - began


def unequal_steps(rank: int) -> dict[str, list[str]]:
    """Node 2 makes one step less, or one more; what each says until it has ended."""
    return {
        f"{make.__name__} {extra:+}": [
            said(lambda n=node, e=extra: n.step(4 + e * (rank == 2))), said(node.optimizer.close)  # type: ignore[misc]
        ]
        for make in (MomentumTracking, optim.DSGD)
        for extra in (-1, 1)
        for node in [ring_of_five(rank, make)]
    }  # fmt: skip


def equal_steps(rank: int) -> str:
    """All make the same steps and end, in whatever order; one of them has left the process group already."""
    node = ring_of_five(rank)
    time.sleep(0.1 * rank)
    node.step(3)
    return said(node.optimizer.close)


def lost_average(rank: int) -> str:
    node = Node(rank, optim.AllReduceSGDm, topology=topology.ring(2), timeout=2.0)
    node.step(1)
    if rank == 1:
        node.optimizer.network.drain()  # else it is luck whether the last message has left
        os._exit(0)
    return said(lambda: node.step(2))


def slow_rank(rank: int, collected: bool) -> int:
    """Nothing is closed by hand: the last message must not be lost when the fast process ends."""
    node = Node(rank, topology=topology.ring(3))
    for _ in range(3):
        if rank == 1:
            time.sleep(0.3)
        node.step()
    made = node.optimizer.round
    if collected:  # as in a script whose function main() has returned
        del node
    if collected or rank == 0:
        dist.destroy_process_group()
    return made
