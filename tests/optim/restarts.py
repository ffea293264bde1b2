"""What the processes of the restart tests do. Each function runs in every process with its rank."""

import os
import signal
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gossamer import optim, topology
from gossamer.errors import GossamerError
from gossamer.methods import Facts, Method, State
from gossamer.methods.contract import Scalar
from gossamer.network import DistributedNetwork, Network
from gossamer.optim import DecentralizedOptimizer, MomentumTracking
from gossamer.optim.bucket import average_buffers
from gossamer.topology import Topology
from tests.optim.sites import Site

ROUNDS = 11


@dataclass
class _Velocity(State):
    v: Tensor


class Sluggish(Method):
    """A user's method, whose state does not say what it keeps."""

    name = "sluggish-dsgd"
    facts = Facts(title="Sluggish DSGD", sends=1)

    def initial(self, x: Tensor, net: Network) -> _Velocity:
        return _Velocity(torch.zeros_like(x))

    def step(self, state: _Velocity, x: Tensor, grad: Tensor, lr: Scalar, net: Network, round: int) -> None:
        state.v.mul_(0.5).add_(grad)
        net.mix(x - lr * state.v, round=round, out=(x,)).wait()


class SluggishDSGD(DecentralizedOptimizer):
    method: ClassVar[type[Method]] = Sluggish


MAKERS: dict[str, type[DecentralizedOptimizer]] = {make.__name__: make for make in (*optim.ALL, SluggishDSGD)}


def graph_for(method: str, labels: tuple[str, ...]) -> Topology:
    """A chain: it is a tree, and its ends are as far apart as nodes can be."""
    plain = topology.from_edges(list(pairwise(labels)))
    return plain.lazy() if method in ("D2", "EDM", "LED") else plain


# The same nodes again -------------------------------------------------------------------------------------------------

CHAIN = ("bonn", "kyiv", "oslo", "rome")
EXACT = ("MomentumTracking", "RelaySumM", "AllReduceSGDm", "SluggishDSGD")


def stop_half_way(rank: int, directory: str) -> dict[str, Tensor]:
    """The whole run, and one of which only the first rounds are made."""
    whole = {}
    for method in EXACT:
        graph = graph_for(method, CHAIN)
        whole[method] = Site(Path(directory, "whole", method), graph, MAKERS[method], node=rank).train(ROUNDS)
        Site(Path(directory, "half", method), graph, MAKERS[method], node=rank).train(7)
    return whole


def go_on_elsewhere(rank: int, directory: str) -> tuple[int, dict[str, Tensor]]:
    """The second half, on other ranks."""
    node, results = (rank + 1) % 4, {}
    for method in EXACT:
        site = Site(Path(directory, "half", method), graph_for(method, CHAIN), MAKERS[method], node=CHAIN[node])
        assert site.saver.resume() == 7
        results[method] = site.train(ROUNDS)
    return node, results


# Other nodes ----------------------------------------------------------------------------------------------------------


def elastic(rank: int, directory: str, labels: tuple[str, ...], rounds: int) -> dict[str, dict[str, Any]]:
    """Every method goes on among the nodes `labels`; what it holds right after the restart and some rounds later."""
    results: dict[str, dict[str, Any]] = {}
    for method, make in MAKERS.items():
        graph = graph_for(method, labels)
        site = Site(Path(directory, method), graph, make, node=labels[rank])
        found: dict[str, Any] = {"start": site.saver.resume()}
        found["x"], found["all"], found["lr"] = site.vector("x"), site.result(), site.scheduler.get_last_lr()[0]
        kept = sorted(site.optimizer._buckets[0].kept or ())
        found["state"] = {name: site.vector(name) for name in kept}
        found["later"] = site.train(rounds) if found["start"] < rounds else site.result()
        if make.method.facts.tracks:
            found["correction"] = make.method().correction(site.optimizer._buckets[0].state).clone()
        found["end state"] = {name: site.vector(name) for name in kept}
        results[method] = found
    return results


def buffers(rank: int) -> dict[str, Tensor]:
    """Nodes 0 to 2 hold buffers, and node 3 takes their mean. Node 1 has a NaN, and nobody a finite number at 2."""
    model, own = nn.Module(), float(rank**2)
    model.register_buffer("statistics", torch.tensor([own, own if rank != 1 else torch.nan, torch.nan]))
    model.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    model.register_buffer("largest", torch.tensor(torch.finfo(torch.float64).min, dtype=torch.float64))
    model.register_buffer("batches", torch.tensor(rank))
    if rank == 3:
        model.statistics[2] = 7.0
    net = DistributedNetwork(topology.ring(4), timeout=20.0)
    average_buffers(model, net, (0, 1, 2), round=5)
    net.close()
    return dict(model.named_buffers())


# Faults ---------------------------------------------------------------------------------------------------------------


def _said(site: Site, rounds: int, before: Any) -> str:
    try:
        site.train(rounds, before)
    except GossamerError as error:
        return str(error)
    return ""


def dead(rank: int, directory: str, method: str) -> str:
    """Rank 1 of four dies in round 5."""

    def die(r: int) -> None:
        if rank == 1 and r == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    return _said(Site(directory, graph_for(method, CHAIN), MAKERS[method], timeout=60.0), 9, die)


def silent(rank: int, directory: str, method: str) -> str:
    """Rank 1 of four does not answer in round 5."""

    def sleep(r: int) -> None:
        if rank == 1 and r == 5:
            time.sleep(3)

    patience = 60.0 if rank == 1 else 1.0
    return _said(Site(directory, graph_for(method, CHAIN), MAKERS[method], timeout=patience), 9, sleep)


def impatient(rank: int, directory: str) -> str:
    """Rank 0 waits for rank 1, which does not answer, and is signalled twice meanwhile."""

    def wait(r: int) -> None:
        if r == 5 and rank == 1:
            time.sleep(4)
        if r == 5 and rank == 0:
            threading.Thread(target=signal_twice, daemon=True).start()

    def signal_twice() -> None:
        for _ in range(2):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGTERM)

    graph = graph_for("DSGD", CHAIN[:2])
    return _said(Site(directory, graph, MAKERS["DSGD"], timeout=60.0), 9, wait)


SIGNALS = {
    "one": ("MomentumTracking", signal.SIGTERM, (0,)),
    "all": ("MomentumTracking", signal.SIGINT, (0, 1, 2, 3)),
    "two": ("DSGD", signal.SIGTERM, (1, 3)),
    "all-reduce": ("AllReduceSGDm", signal.SIGTERM, (2,)),
}
"""A method, and the signal that some of the four nodes get in round 4."""


def told_to_stop(rank: int, directory: str) -> dict[str, object]:
    """The exit code of every case."""
    codes: dict[str, object] = {}
    for case, (method, number, signalled) in SIGNALS.items():

        def signal_once(r: int, number: int = number, signalled: tuple[int, ...] = signalled) -> None:
            if rank in signalled and r == 4:
                os.kill(os.getpid(), number)

        site = Site(Path(directory, case), graph_for(method, CHAIN), MAKERS[method], every=100)
        try:
            site.train(20, signal_once)
        except SystemExit as end:
            codes[case] = end.code
    return codes


def whole_and_resumed(rank: int, directory: str) -> dict[str, list[Tensor]]:
    """Every case without the signal, and what was stopped by it taken up again."""
    return {
        case: [
            Site(Path(directory, where), graph_for(method, CHAIN), MAKERS[method], every=every).train(20)
            for where, every in ((f"whole-{case}", 3), (case, 100))
        ]
        for case, (method, _, _) in SIGNALS.items()
    }


def train(rank: int, rounds: int, sites: tuple[str, ...], *directories: str) -> list[Tensor]:
    graph = graph_for("MomentumTracking", sites)
    return [Site(directory, graph).train(rounds) for directory in directories]


def slow_end(rank: int, directory: str) -> list[int]:
    """The end of the chain is slow; how many rounds the beginning is ahead of it, and what each of them keeps."""
    site = Site(directory, graph_for("DSGD", CHAIN), MomentumTracking, every=1)
    seen = []

    def look(r: int) -> None:
        if rank == 3:
            time.sleep(0.05)
        if rank == 0:
            # The slow node first: while this one looks at its own, the slow one can only have got more.
            slow, own = (_newest_rounds(directory, name) for name in (CHAIN[3], CHAIN[0]))
            seen.append(max(own) - max(slow) if slow & own else 1000)

    site.train(25, look)
    return [max(seen, default=0), len(_newest_rounds(directory, CHAIN[rank]))]


def _newest_rounds(directory: str, name: str) -> set[int]:
    return {int(p.stem.split("-")[1]) for p in Path(directory, f"node-{name}").glob("round-*.ckpt")}
