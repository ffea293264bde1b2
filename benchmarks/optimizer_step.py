"""The overhead of an optimizer without the network: step() against torch.optim.SGD, side by side in one run.

    python benchmarks/optimizer_step.py [--repeats 15] [--json FILE]

LeNet, one thread, a node of a ring of four. A message that is ready at once replaces the network; the rest is the same
as on real nodes: reading gradients, the update, filling the send buffer and its header, writing parameters. The
baseline is torch.optim.SGD(momentum=0.9, foreach=True). Limit: 1.5x. Times are processor time of the stepping thread,
which never waits here: on an idle machine that is wall-clock time, on a busy one it is fairer. For information, the
last column adds receiving: checking two neighbours' messages and their weighted sum.
"""

import argparse
import sys
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from _measurements import Measurement, finish, options_of
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import gossamer.optim.decentralized as decentralized
from gossamer import optim, topology
from gossamer.models import LeNet
from gossamer.network import DistributedNetwork, Ready
from gossamer.network.transfer import Messenger
from gossamer.network.wire import Header, Message

LIMIT = 1.5
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
    print(f"{'optimizer':<20}{'weight decay':>14}{'SGD':>12}{'gossamer':>12}{'ratio':>8}{'limit':>7}{'with sum':>12}")
    measurements = []
    for make in (optim.MomentumTracking, optim.DSGDm):
        for decay in (0.0, 1e-3):
            optimizers = [torch.optim.SGD(lenet(), lr=1e-4, momentum=0.9, weight_decay=decay, foreach=True)]
            for with_sum in (False, True):
                shared = {"topology": topology.ring(4), "equal_gradients": "allow"}
                ours = make(lenet(), lr=1e-4, momentum=0.9, weight_decay=decay, **shared)
                ours.network.messenger.with_sum = with_sum  # type: ignore[attr-defined]
                optimizers.append(ours)
            rows = [[seconds(o) for o in optimizers] for _ in range(options.repeats + 1)][1:]
            case = f"{make.__name__}, weight decay {decay:g}"
            times = [
                Measurement(what, 1e3 * median(column), "ms", case=case)
                for what, column in zip(("SGD", "step()", "step() with the sum"), zip(*rows, strict=True), strict=True)
            ]
            over = median(ready / sgd for sgd, ready, _ in rows)
            ratio = Measurement("step() over SGD", over, limit=LIMIT, case=case)
            measurements += [*times, ratio]
            sgd, ready, summed = (f"{1e3 * m.value:>9.1f} us" for m in times)
            columns = f"{sgd}{ready}{ratio.value:>8.2f}{ratio.limit:>7.2f}{summed}"
            print(f"{make.__name__:<20}{decay:>14g}{columns}", flush=True)
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
