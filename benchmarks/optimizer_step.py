"""The overhead of an optimizer without the network: step() against torch.optim.SGD, side by side in one run.

    python benchmarks/optimizer_step.py [--repeats 15] [--json FILE]

LeNet, one thread, a node of a ring of four. A message that is ready at once replaces the network; the rest is the same
as on real nodes: reading gradients, the update, filling the send buffer and its header, writing parameters. The
baseline is torch.optim.SGD(momentum=0.9, foreach=True). Limit: 1.5x. Times are processor time of the stepping thread,
which never waits here: on an idle machine that is wall-clock time, on a busy one it is fairer. For information, the
column "with sum" adds receiving: checking two neighbours' messages and their weighted sum. The last one is the share
of that which goes into looking, before a message is sent, whether all its numbers are finite. Limit: 3 %.

The last line is what `optimizer.metrics()` and a `note(loss=...)` per step add to a step of training (the gradient of
LeNet with a batch of 64, and the step with the sum), in processor time of the whole process, while another process asks
for the figures once a second (Prometheus asks every 15 s or minute). Limit: 1 %.
"""

import argparse
import subprocess
import sys
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from _measurements import Measurement, finish, options_of
from torch import Tensor
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

import gossamer.optim.decentralized as decentralized
from gossamer import optim, topology
from gossamer.models import LeNet
from gossamer.network import DistributedNetwork, Ready
from gossamer.network.transfer import Messenger
from gossamer.network.wire import Header, Message, is_finite

LIMIT = 1.5
LOOK_LIMIT = 0.03
METRICS_LIMIT = 0.01
ASK = """
import sys, urllib.request
for line in sys.stdin:
    urllib.request.urlopen(line.strip()).read()
    print(flush=True)
"""
STEPS = 100


class _Done:
    """Completed work."""

    def wait(self, timeout: object) -> None:
        """Return at once."""


class ReadyMessenger(Messenger):
    """The real messenger with the wire cut out: send buffers are filled, and the answer is there at once."""

    with_sum = False
    """Whether to receive, check and sum messages from the neighbours."""

    def post(self, pending: Any, outgoing: list[Message], round: int) -> Any:
        """Fill the send buffers."""
        if self.with_sum:
            return super().post(pending, outgoing, round)
        head = Header(round, self._serial, self.node, *self.settings)
        self._serial += 1
        for message in outgoing[:1]:
            message.write(head)
        self.envelopes.give_back(pending.envelope, ())
        return Ready(*pending.out)

    def _transmit(
        self, peers: Any, outgoing: list[Message], incoming: list[Message], round: int
    ) -> tuple[list[Any], list[Any]]:
        head = outgoing[0].read()
        for message in incoming:
            message.write(head)
        return [_Done()] * len(outgoing), [_Done()] * len(incoming)


class ReadyNetwork(DistributedNetwork):
    """The real network with such a messenger."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.messenger = ReadyMessenger(self.topology, self.group, self.node, self.waiting)

    def join(self, facts: dict[str, Any] | None = None, own: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Every node says what this one says."""
        self.messenger.ranks = list(range(self.n))
        return [own or {}] * self.n

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """All nodes hold the same."""
        return vector


def seconds(optimizer: torch.optim.Optimizer) -> float:
    began = time.thread_time()
    for _ in range(STEPS):
        optimizer.step()
    return (time.thread_time() - began) / STEPS


def seconds_to_look(optimizer: Any) -> float:
    """One look at all that the optimizer sends in a step."""
    (envelopes,) = optimizer.network.messenger.envelopes.idle.values()
    body = envelopes[0].outgoing[0].body
    began = time.thread_time()
    for _ in range(STEPS):
        is_finite(body)
    return (time.thread_time() - began) / STEPS


def cost_of_metrics(repeats: int) -> Measurement:
    """What one request and a note per step add to the steps of training of a second."""
    inputs, targets = torch.rand(64, 1, 28, 28), torch.arange(64) % 10
    sides = []
    for _ in range(2):
        model = LeNet((1, 28, 28), 10)
        node = optim.MomentumTracking(model.parameters(), lr=1e-4, topology=topology.ring(4), equal_gradients="allow")
        node.network.messenger.with_sum = True  # type: ignore[attr-defined]
        sides.append((model, node))
    plain, served = sides
    address = f"http://127.0.0.1:{served[1].metrics(port=0)}/metrics\n"

    def train(side: tuple[torch.nn.Module, optim.DecentralizedOptimizer], steps: int, note: bool) -> None:
        model, node = side
        for _ in range(steps):
            node.zero_grad()
            loss = functional.cross_entropy(model(inputs), targets)
            loss.backward()
            node.step()
            if note:
                node.note(loss=loss)

    def without() -> float:
        began = time.process_time()
        train(plain, steps, note=False)
        return time.process_time() - began

    def with_metrics() -> float:
        began = time.process_time()
        ask.stdin.write(address)
        ask.stdin.flush()
        train(served, steps, note=True)
        ask.stdout.readline()
        return time.process_time() - began

    began = time.perf_counter()
    train(plain, 100, note=False)
    steps = max(1, round(100 / (time.perf_counter() - began)))

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", ASK], **pipes) as ask:
        added = [with_metrics() / without() - 1 for _ in range(repeats + 1)][1:]
        ask.stdin.close()
    print(f"optimizer.metrics(), asked once a second: {100 * median(added):+.2f} % of a step of training, limit 1 %")
    return Measurement("optimizer.metrics() over a step of training", median(added), "share", limit=METRICS_LIMIT)


def lenet() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    parameters = list(LeNet((1, 28, 28), 10).parameters())
    for parameter in parameters:
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    return parameters


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repetitions; medians are compared")
    options = options_of(parser)
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    decentralized.DistributedNetwork = ReadyNetwork  # type: ignore[misc]
    print(f"step() on LeNet, 44,470 parameters, float32, 1 thread, medians of {options.repeats}")
    head = f"{'optimizer':<20}{'weight decay':>14}{'SGD':>12}{'gossamer':>12}{'ratio':>8}{'limit':>7}"
    print(f"{head}{'with sum':>12}{'look':>8}")
    measurements = []
    for make in (optim.MomentumTracking, optim.DSGDm):
        for decay in (0.0, 1e-3):
            optimizers = [torch.optim.SGD(lenet(), lr=1e-4, momentum=0.9, weight_decay=decay, foreach=True)]
            for with_sum in (False, True):
                shared = {"topology": topology.ring(4), "equal_gradients": "allow"}
                ours = make(lenet(), lr=1e-4, momentum=0.9, weight_decay=decay, **shared)
                ours.network.messenger.with_sum = with_sum  # type: ignore[attr-defined]
                optimizers.append(ours)
            rows = [[*map(seconds, optimizers), seconds_to_look(optimizers[-1])] for _ in range(options.repeats + 1)][
                1:
            ]
            case = f"{make.__name__}, weight decay {decay:g}"
            times = [
                Measurement(what, 1e3 * median(column), "ms", case=case)
                for what, column in zip(
                    ("SGD", "step()", "step() with the sum", "look"), zip(*rows, strict=True), strict=True
                )
            ]
            over = median(ready / sgd for sgd, ready, *_ in rows)
            look = Measurement(
                "look over step() with the sum", median(row[3] / row[2] for row in rows), limit=LOOK_LIMIT, case=case
            )
            ratio = Measurement("step() over SGD", over, limit=LIMIT, case=case)
            measurements += [*times, ratio, look]
            sgd, ready, summed, _ = (f"{1e3 * m.value:>9.1f} us" for m in times)
            columns = f"{sgd}{ready}{ratio.value:>8.2f}{ratio.limit:>7.2f}{summed}{100 * look.value:>6.1f} %"
            print(f"{make.__name__:<20}{decay:>14g}{columns}", flush=True)
    measurements.append(cost_of_metrics(options.repeats))
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
