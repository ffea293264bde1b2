"""The effect of overlap on a slow link: the time that nodes wait for messages, with and without it.

    sudo python benchmarks/overlap.py [--rounds 50] [--only sleep,lenet,million] [--json FILE]

Every node is a process in its own network namespace, connected to the others by a link of 100 Mbit/s in each
direction (tc tbf). First the transfer is measured: all nodes start at once and only wait for the neighbours' messages.
Then Momentum Tracking, which sends two vectors, and DSGDm, which sends one, train with a compute time of at least 1.5
times the transfer of the two vectors. "sleep" sleeps instead of computing, on a ring of four; "lenet" is LeNet's
forward and backward pass on one core each, on two nodes, with a batch large enough for that time. All figures are
medians over the rounds, of the worst node.

"million" is a model of a million parameters on a ring of three, with 0.2 s of sleep as its computation: the time of a
step with different methods, beside what `gossamer plan` says of it. The plan is given these 0.2 s; how long compressing
takes, it measures on all nodes at the same time, because three nodes compress on two cores. These figures are means
over the steps, of the worst node.

A node waits for a neighbour that computes, not for the wire, as long as the neighbour began to send later than the node
itself.

It needs root and `ip`, `tc` and `unshare`. The namespaces are private to the benchmark and disappear with its
processes, even if those are killed.
"""

import argparse
import bisect
import ctypes
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
import torch.distributed as dist
from _measurements import Measurement, finish, options_of
from torch.nn import functional

from gossamer import methods, optim, topology
from gossamer.experiments.traffic import plan
from gossamer.models import LeNet
from gossamer.network import DistributedNetwork
from gossamer.optim.optimizers import optimizer_of

RATE = "100mbit"
CONTROL = "reno"
"""The congestion control that every Linux has. BBR, the default of some, leaves a tenth of a shared link idle."""
SMALL = {"rmem": "4096 65536 262144", "wmem": "4096 65536 262144"}
"""Socket buffers of at most 256 KiB: a message of two of LeNet's vectors does not fit, so it takes several writes."""
USUAL = {"rmem": "4096 131072 6291456", "wmem": "4096 16384 4194304"}
"""Linux's own, for the messages of a million parameters."""
WAIT, ALL, SHORTER = 0.05, 0.8, 1.0
"""The limits: waiting with overlap, waiting without it (most of the transfer), and the time of a round."""
LEAST = 1.5
WARM_UP = 3
COMPUTE, PLANNED, STEPS, EXCHANGES = 0.2, 0.15, 10, 3
"""The case "million": seconds of computing, how far the plan may be off, and how many steps and exchanges are measured
at least."""
MILLION = (
    ("momentum-tracking", 1),
    ("motef:compress=quantize:bits=4", 1),
    ("motef:compress=top-k:share=0.01", 1),
    ("gradient-tracking", 10),
    ("k-gt", 5),
    ("led", 5),
    ("choco-sgdm:compress=quantize:bits=4", 1),
    ("dsgdm", 1),
    ("all-reduce-sgdm", 1),
)
"""Methods, and the steps for each exchange: their own, or those of `Outer` around them."""


@dataclass(frozen=True)
class Case:
    """One comparison: the kind of computation, the number of nodes, and the compute time in transfers."""

    title: str
    nodes: int
    compute: float
    sleeps: bool
    plan: bool = False


CASES = {
    "sleep": [Case("sleep, ring of 4", 4, LEAST, True), Case("sleep, ring of 4", 4, 2 * LEAST, True)],
    "lenet": [Case("LeNet, 2 nodes", 2, 1.1 * LEAST, False)],
    "million": [Case("a million parameters", 3, 0.0, True, plan=True)],
}


# One node -------------------------------------------------------------------------------------------------------------


def node(argument: str) -> None:
    """Measure on this node and write the answer to a file."""
    options = json.loads(argument)
    rank, rounds, case = options["rank"], options["rounds"], Case(**options["case"])
    torch.set_num_threads(1)
    for key, value in {"congestion_control": CONTROL, **(USUAL if case.plan else SMALL)}.items():
        Path(f"/proc/sys/net/ipv4/tcp_{key}").write_text(value, encoding="utf-8")
    dist.init_process_group("gloo", init_method="tcp://10.0.0.1:29500", rank=rank, world_size=case.nodes)
    graph = topology.ring(case.nodes)
    if case.plan:
        logs = [train_million(spec, every, graph) for spec, every in MILLION]
        Path(options["answer"]).write_text(json.dumps(logs), encoding="utf-8")
        return
    transfers = [transfer(graph, vectors, rounds) for vectors in (1, 2)]
    compute, forward_and_backward = computation(case, transfers[1])
    answer: dict[str, Any] = {"transfers": transfers, "compute": compute}
    for make in (optim.MomentumTracking, optim.DSGDm):
        answer[make.__name__] = train(make, graph, forward_and_backward, rounds)
    dist.barrier()
    Path(options["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def transfer(graph: topology.Topology, vectors: int, rounds: int) -> float:
    """Seconds from sending a message until those of all neighbours have arrived, on the slowest node."""
    net = DistributedNetwork(graph)
    sent = [torch.zeros(size()) for _ in range(vectors)]
    times = []
    for r in range(rounds + WARM_UP):
        dist.barrier()
        began = time.perf_counter()
        net.mix(*sent, round=r).wait()
        times.append(time.perf_counter() - began)
        net.drain()
    return agreed(median(times[WARM_UP:]))


def computation(case: Case, transfer: float) -> tuple[float, Callable[[torch.nn.Module], None]]:
    """The shortest compute time of any node in seconds, and a computation of the length that the case asks for."""
    wanted = case.compute * transfer
    if case.sleeps:
        return wanted, lambda model: time.sleep(wanted)

    def of(batch: int) -> Callable[[torch.nn.Module], None]:
        inputs, targets = torch.rand(batch, 1, 28, 28), torch.arange(batch) % 10
        return lambda model: functional.cross_entropy(model(inputs), targets).backward()

    batch, model = 100, LeNet((1, 28, 28), 10)
    while True:
        dist.barrier()
        compute = -agreed(-median(seconds(of(batch), model) for _ in range(15)))
        if compute >= wanted:
            return compute, of(batch)
        batch = math.ceil(batch * max(1.05, wanted / compute))


class Log:
    """When each message was sent and waited for, and when each step ended, by the clock that all processes share."""

    def __init__(self, optimizer: optim.DecentralizedOptimizer) -> None:
        self.posts: dict[int, float] = {}
        self.receives: list[tuple[int, list[int], float, float]] = []
        self.steps: list[float] = []
        messenger = optimizer.network.messenger
        post, receive = messenger.post, messenger.receive

        def logged_post(pending: Any, outgoing: list[Any], round: int) -> Any:
            began = time.monotonic()
            found = post(pending, outgoing, round)
            self.posts[found.header.serial] = began
            return found

        def logged_receive(pending: Any) -> None:
            began = time.monotonic()
            receive(pending)
            self.receives.append((pending.header.serial, pending.peers.senders, began, time.monotonic()))

        messenger.post, messenger.receive = logged_post, logged_receive


@dataclass
class Step:
    """How long a step took, in seconds, and what of that was waiting."""

    length: float
    wire: float = 0.0
    neighbours: float = 0.0

    @property
    def wait(self) -> float:
        """For whatever reason."""
        return self.wire + self.neighbours


def steps_of(logs: list[dict[str, Any]], first: int = WARM_UP) -> list[list[Step]]:
    """The steps after the first ones of every node."""
    found = []
    for own in logs:
        ends = own["steps"][first:]
        steps = [Step(end - begin) for begin, end in itertools.pairwise(ends)]
        for serial, senders, began, ended in own["receives"]:
            k = bisect.bisect_left(ends, ended) - 1
            if 0 <= k < len(steps):
                sent = max(logs[j]["posts"][str(serial)] for j in senders)
                late = min(max(0.0, sent - own["posts"][str(serial)]), ended - began)
                steps[k].neighbours += late
                steps[k].wire += ended - began - late
        found.append(steps)
    return found


def train(make: Any, graph: topology.Topology, compute: Callable[[torch.nn.Module], None], rounds: int) -> Any:
    """The log of so many steps and those of the warm-up."""
    torch.manual_seed(0)
    model = LeNet((1, 28, 28), 10)
    optimizer = make(model.parameters(), lr=1e-3, topology=graph)
    log = Log(optimizer)
    generator = torch.Generator().manual_seed(optimizer.node)
    for parameter in model.parameters():
        parameter.grad = 1e-3 * torch.randn(parameter.shape, generator=generator)
    dist.barrier()
    for _ in range(rounds + WARM_UP + 1):
        optimizer.zero_grad(set_to_none=False)
        compute(model)
        optimizer.step()
        log.steps.append(time.monotonic())
    optimizer.close()
    dist.barrier()
    return vars(log)


def train_million(spec: str, every: int, graph: topology.Topology) -> dict[str, Any]:
    """The log of a method with a million parameters, and what the plan says of its steps."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1000, 1000, bias=False)
    method = methods.get(spec)
    if every > 1 and "every" not in method.hyperparameters:
        inner = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        optimizer: optim.DecentralizedOptimizer = optim.Outer(inner, spec, every=every, topology=graph)
    else:
        own = methods.get(spec, every=every) if every > 1 else method
        optimizer = optimizer_of(own, model.parameters(), 1e-3, topology=graph)
    log = Log(optimizer)
    generator = torch.Generator().manual_seed(optimizer.node)
    gradient = 1e-3 * torch.randn(1000, 1000, generator=generator)
    dist.barrier()
    told = plan(spec, graph, parameters=10**6, link=1e8, step=COMPUTE, every=every).step
    dist.barrier()
    for _ in range(every * (max(EXCHANGES, STEPS // every) + WARM_UP)):
        time.sleep(COMPUTE)
        model.weight.grad = gradient
        optimizer.step()
        log.steps.append(time.monotonic())
    optimizer.close()
    dist.barrier()
    return {**vars(log), "plan": told}


def planned(answers: list[list[dict[str, Any]]]) -> list[Measurement]:
    """The steps of every method as they were, and as the plan says."""
    rows = []
    print(f"{'method':<34}{'step':>9}{'plan':>9}{'waiting for the wire':>22}{'for neighbours':>16}")
    for k, (spec, every) in enumerate(MILLION):
        logs = [answer[k] for answer in answers]
        nodes = steps_of(logs, first=every * WARM_UP - 1)  # the step that ends the last exchange of the warm-up
        times = [mean(step.length for step in steps) for steps in nodes]
        wires = [mean(step.wire for step in steps) for steps in nodes]
        others = [mean(step.neighbours for step in steps) for steps in nodes]
        step, told = max(times), max(own["plan"] for own in logs)
        name = spec + (f", every {every} steps" if every > 1 else "")
        print(f"{name:<34}{step:>7.3f} s{told:>7.3f} s{max(wires):>20.3f} s{max(others):>14.3f} s", flush=True)
        rows += [
            Measurement(f"{name}: a step", step, "s"),
            Measurement(f"{name}: waiting for the wire", max(wires), "s"),
            Measurement(f"{name}: waiting for neighbours that compute", max(others), "s"),
            Measurement(f"{name}: the plan is off by", abs(told / step - 1), "share", limit=PLANNED),
        ]
        if spec.startswith("motef"):
            rows.append(Measurement(f"{name}: waiting for the wire over computing", max(wires) / COMPUTE, limit=WAIT))
    return rows


def size() -> int:
    return sum(p.numel() for p in LeNet((1, 28, 28), 10).parameters())


def seconds(compute: Callable[[torch.nn.Module], None], model: torch.nn.Module) -> float:
    began = time.perf_counter()
    compute(model)
    return time.perf_counter() - began


def agreed(value: float) -> float:
    """The largest over the nodes."""
    largest = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest)


# Network namespaces ---------------------------------------------------------------------------------------------------


def command(line: str) -> None:
    subprocess.run(line.split(), check=True)


def build_network(nodes: int) -> None:
    """Namespaces node0, node1, ... with the addresses 10.0.0.1, 10.0.0.2, ... on one switch."""
    command("ip link add switch type bridge")
    command("ip link set switch up")
    for k in range(nodes):
        command(f"ip netns add node{k}")
        command(f"ip link add port{k} type veth peer name eth0 netns node{k}")
        command(f"ip link set port{k} master switch up")
        command(f"ip -n node{k} address add 10.0.0.{k + 1}/24 dev eth0")
        command(f"ip -n node{k} link set lo up")
        command(f"ip -n node{k} link set eth0 up")
        limit = f"root tbf rate {RATE} burst 32kb latency 200ms"
        command(f"tc qdisc add dev port{k} {limit}")
        command(f"tc -n node{k} qdisc add dev eth0 {limit}")


def measure(case: Case, rounds: int) -> list[dict[str, Any]]:
    """The answers of all nodes of a case."""
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory, f"{rank}.json") for rank in range(case.nodes)]
        processes = []
        try:
            for rank, file in enumerate(files):
                argument = json.dumps({"rank": rank, "rounds": rounds, "case": vars(case), "answer": str(file)})
                line = [*f"ip netns exec node{rank}".split(), sys.executable, __file__, "--node", argument]
                environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
                processes.append(subprocess.Popen(line, env=environment, start_new_session=True))
            if any(process.wait() for process in processes):
                raise SystemExit("A node failed; its error is above.")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def inside(options: argparse.Namespace) -> int:
    """Measure all cases, inside the private namespaces."""
    Path("/run/netns").mkdir(exist_ok=True)
    command("mount -t tmpfs netns /run/netns")
    cases = [case for name in options.only.split(",") for case in CASES[name]]
    build_network(max(case.nodes for case in cases))
    print(f"LeNet's vectors, {size():,} numbers, links of {RATE}, medians of {options.rounds} rounds, worst node")
    print(f"{'compute':<22}{'what':<58}{'measured':>10}{'limit':>9}")
    measurements = []
    for case in cases:
        answers = measure(case, options.rounds)
        if case.plan:
            measurements += [replace(m, case=case.title) for m in planned(answers)]
            continue
        one, two = answers[0]["transfers"]
        compute = answers[0]["compute"] / two
        tracking, rival = (steps_of([a[name] for a in answers]) for name in ("MomentumTracking", "DSGDm"))
        ours, theirs = (max(median(s.length for s in steps) for steps in nodes) for nodes in (tracking, rival))
        wire, computing = (max(median(getattr(s, what) for s in steps) for steps in tracking) / two
                           for what in ("wire", "neighbours"))  # fmt: skip
        without = min(median(s.wait for s in steps) for steps in rival) / one
        rows = [
            Measurement("transfer of one vector", 1e3 * one, "ms"),
            Measurement("transfer of two vectors", 1e3 * two, "ms"),
            Measurement("round of Momentum Tracking", 1e3 * ours, "ms"),
            Measurement("round of DSGDm", 1e3 * theirs, "ms"),
            Measurement("compute over transfer of two vectors", compute, limit=LEAST, at_most=False),
            Measurement("Momentum Tracking: waiting for the wire over transfer", wire, limit=WAIT),
            Measurement("Momentum Tracking: waiting for neighbours over transfer", computing),
            Measurement("DSGDm: waiting over transfer of one vector", without, limit=ALL, at_most=False),
            Measurement("round of Momentum Tracking over one of DSGDm", ours / theirs, limit=SHORTER, strict=True),
        ]
        head = case.title
        for m in rows:
            measured = f"{m.value:>7.1f} ms" if m.unit == "ms" else f"{m.value:>10.3f}"
            print(f"{head:<22}{m.what:<58}{measured}   {m.judgement}".rstrip(), flush=True)
            head = ""
        whole = f"{case.title}, {case.compute:g} transfers of computing"
        measurements += [replace(m, case=whole) for m in rows]
    return finish(measurements, options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each measurement; medians are compared")
    parser.add_argument("--only", default="sleep,lenet,million", help="cases to measure")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--node", help=argparse.SUPPRESS)
    options = options_of(parser)
    if options.node:
        node(options.node)
        return 0
    if vars(options).pop("inside"):
        return inside(options)
    lacking = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if os.name != "posix" or os.geteuid() != 0 or lacking:
        print(
            "This benchmark makes network namespaces with slow links, for which it needs root on Linux and the tools "
            "ip, tc and unshare (iproute2, util-linux).",
            file=sys.stderr,
        )
        return 2
    # The namespaces of mounts, processes and networks disappear with the first process in them, which ends with this
    # process even if it is killed: no cleanup is needed.
    world = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    again = [sys.executable, __file__, "--inside", "--rounds", str(options.rounds), "--only", options.only]
    again += ["--json", str(options.json)] if options.json else []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen([*world, *again], start_new_session=True, preexec_fn=end_with_parent)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        process.kill()
        process.wait()


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
