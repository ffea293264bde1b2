"""Processor time in communication calls: one fused message against one message per tensor.

    python benchmarks/messages.py [--rounds 40] [--json FILE]

Four processes on a ring exchange two vectors per round over gloo, as Momentum Tracking does, and sleep meanwhile.
The baseline uses one isend and one irecv per tensor and neighbour; ours uses one message per neighbour. Both sides
alternate in the same processes. "calls" is the processor time of the calling thread from the first isend to the return
of the last wait, without the sleep: sending, receiving and, for ours, headers and their checks. Limit: ours needs at
least 2x less. For information, "with copies and sums" adds filling the message and the weighted sum, and "whole
process" adds gloo's threads, which move the bytes. For large tensors the bytes dominate, and both sides send the same.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from _measurements import Measurement, finish, options_of
from torch import Tensor

from gossamer import models, topology
from gossamer.network import DistributedNetwork
from gossamer.network.transfer import Messenger

NODES = 4
LIMIT = 2.0
WARM_UP = 3
ITEMS = ("calls", "with copies and sums", "whole process")
IMAGE = (3, 32, 32)
CASES: dict[str, tuple[Callable[[], torch.nn.Module], int, float]] = {
    "LeNet": (lambda: models.LeNet((1, 28, 28), 10), 1, 0.03),
    "ResNet-34, 1/16 of each tensor": (lambda: models.ResNet34(IMAGE, 10), 16, 0.15),
    "VGG-11": (lambda: models.VGG11(IMAGE, 10), 1, 0.6),
}
"""A model, 1/n of each of whose tensors is exchanged, and the seconds of sleep, in which all bytes arrive."""


class Clocks:
    """Processor seconds of a round: in calls, in the calling thread, and in the whole process."""

    def __init__(self) -> None:
        self.calls = 0.0
        self._thread, self._process = time.thread_time(), time.process_time()

    def call(self, one: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a communication call and time it."""
        began = time.thread_time()
        result = one(*arguments, **options)
        self.calls += time.thread_time() - began
        return result

    def read(self) -> tuple[float, float, float]:
        """The three times."""
        return self.calls, time.thread_time() - self._thread, time.process_time() - self._process


class TimedMessenger(Messenger):
    """The messenger with its communication calls on a clock."""

    clocks = Clocks()

    def post(self, *arguments: Any) -> Any:
        """Start the transfers."""
        return self.clocks.call(super().post, *arguments)

    def receive(self, *arguments: Any) -> None:
        """Wait for messages."""
        self.clocks.call(super().receive, *arguments)

    def finish_sends(self, *arguments: Any) -> None:
        """Wait until messages were taken."""
        self.clocks.call(super().finish_sends, *arguments)


def tensor_by_tensor(tensors: list[Tensor], rank: int, sleep: float) -> Callable[[int], tuple[float, ...]]:
    """The baseline: one message per tensor."""
    peers = sorted({(rank - 1) % NODES, (rank + 1) % NODES})
    arrived = {peer: [torch.empty_like(t) for t in tensors] for peer in peers}
    mixed = [torch.empty_like(t) for t in tensors]

    def start() -> list[Any]:
        works = []
        for peer in peers:
            works += [dist.isend(tensor, peer) for tensor in tensors]
            works += [dist.irecv(tensor, peer) for tensor in arrived[peer]]
        return works

    def finish(works: list[Any]) -> None:
        for work in works:
            work.wait()

    def one(_: int) -> tuple[float, ...]:
        clocks = Clocks()
        works = clocks.call(start)
        time.sleep(sleep)
        clocks.call(finish, works)
        for k, tensor in enumerate(tensors):
            torch.mul(tensor, 1 / 3, out=mixed[k])
            for peer in peers:
                mixed[k].add_(arrived[peer][k], alpha=1 / 3)
        return clocks.read()

    return one


def fused(tensors: list[Tensor], sleep: float) -> Callable[[int], tuple[float, ...]]:
    """Our way: two flat vectors in one message."""
    net = DistributedNetwork(topology.ring(NODES))
    net.messenger = messenger = TimedMessenger(net.topology, net.group, net.node, net.waiting)
    both = torch.cat([t.reshape(-1) for t in tensors])
    vectors = both.view(2, -1).unbind(0)
    out = tuple(torch.empty_like(v) for v in vectors)

    def one(r: int) -> tuple[float, ...]:
        messenger.clocks = Clocks()
        message = net.mix(*vectors, round=r, out=out)
        time.sleep(sleep)
        message.wait()
        return messenger.clocks.read()

    return one


def node(argument: str) -> None:
    """Measure on this node; rank 0 prints the medians of plain and ours."""
    rank, store, name, rounds = json.loads(argument)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=NODES)
    make, part, sleep = CASES[name]
    x = [torch.rand(max(1, p.numel() // part)) for p in make().parameters()]
    tensors = [*x, *(torch.rand_like(t) for t in x)]
    sides = tensor_by_tensor(tensors, rank, sleep), fused(tensors, sleep)
    times: list[list[tuple[float, ...]]] = [[], []]
    for r in range(rounds + WARM_UP):
        for side, kept in zip(sides, times, strict=True):
            dist.barrier()
            kept.append(side(r))
    dist.barrier()
    if rank == 0:
        medians = [[median(column) for column in zip(*kept[WARM_UP:], strict=True)] for kept in times]
        print(json.dumps({"tensors": len(x), "numbers": sum(t.numel() for t in x), "medians": medians}))


def measure(name: str, rounds: int) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        processes = []
        try:
            for rank in range(NODES):
                argument = json.dumps([rank, f"{directory}/store", name, rounds])
                line = [sys.executable, str(Path(__file__).resolve()), "--node", argument]
                processes.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
            answer, *_ = [process.communicate()[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return json.loads(answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="rounds, in which both sides alternate")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    options = options_of(parser)
    if options.node:
        node(options.node)
        return 0
    print(f"two vectors to two neighbours, {NODES} processes, processor time in ms, medians of {options.rounds}")
    head = f"{'model':<32}{'tensors':>8}{'numbers':>11}"
    print(f"{head}  {'what':<22}{'per tensor':>11}{'fused':>9}{'ratio':>8}{'limit':>9}")
    measurements = []
    for name in CASES:
        answer = measure(name, options.rounds)
        head = f"{name:<32}{answer['tensors']:>8}{answer['numbers']:>11,}"
        for item, plain, fused in zip(ITEMS, *answer["medians"], strict=True):
            limit = LIMIT if item == "calls" else None
            row = [
                Measurement(f"{item}, per tensor", 1e3 * plain, "ms", case=name),
                Measurement(f"{item}, fused", 1e3 * fused, "ms", case=name),
                Measurement(f"{item}, per tensor over fused", plain / fused, limit=limit, at_most=False, case=name),
            ]
            measurements += row
            plain_ms, fused_ms, ratio = (m.value for m in row)
            print(
                f"{head:<51}  {item:<22}{plain_ms:>11.2f}{fused_ms:>9.2f}{ratio:>8.2f}  {row[-1].judgement}".rstrip(),
                flush=True,
            )
            head = ""
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
