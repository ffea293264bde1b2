"""The cost of `sites=` where nothing happens: a step with it against a step without, side by side in real processes.

    python benchmarks/sites.py [--repeats 15] [--json FILE]

Three nodes on loopback, a complete graph. In each process two optimizers take turns, one among `Sites` and one on a
process group, with the same parameters and gradients; a turn is as many steps as fill some hundredths of a second.
Limit: at most 2 % slower.
"""

import argparse
import multiprocessing
import os
import sys
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from _measurements import Measurement, finish, options_of

import gossamer as gs
from gossamer.network.sites import serve

NODES, PORT = 3, 29597
CASES = (("MomentumTracking", 100_000, 30), ("MomentumTracking", 1_000_000, 5), ("DSGDm", 1_000_000, 5))


def node(rank: int, repeats: int, queue: Any) -> None:
    torch.set_num_threads(1)
    for name, dim, count in CASES:
        torch.manual_seed(0)
        models = [torch.nn.Parameter(torch.randn(dim)) for _ in range(2)]
        sites = gs.Sites(f"127.0.0.1:{PORT}", name=f"site-{rank}", at_least=NODES)
        with_sites = getattr(gs.optim, name)([models[0]], lr=1e-3, topology="complete", sites=sites)
        torch.manual_seed(rank + 1)
        for model in models:
            model.grad = torch.randn(dim)
        _warm_up(with_sites)
        group = _group(f"{name}-{dim}", rank)
        without = getattr(gs.optim, name)([models[1]], lr=1e-3, topology="complete", group=group)
        _warm_up(without)
        times = []
        for k in range(repeats):  # each is first as often as the other
            turns = {id(o): _seconds(o, count) for o in ((with_sites, without) if k % 2 else (without, with_sites))}
            times.append((turns[id(with_sites)], turns[id(without)]))
        queue.put((name, dim, rank, times))
        with_sites.close()
        without.close()
        dist.destroy_process_group()


def _warm_up(optimizer: torch.optim.Optimizer) -> None:
    for _ in range(5):
        optimizer.step()


def _group(name: str, rank: int) -> Any:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT + 1 + [f"{n}-{d}" for n, d, _ in CASES].index(name))
    )
    dist.init_process_group("gloo", rank=rank, world_size=NODES)
    return dist.group.WORLD


def _seconds(optimizer: torch.optim.Optimizer, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        optimizer.step()
    return (time.perf_counter() - began) / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repetitions; medians are compared")
    options = options_of(parser)
    context = multiprocessing.get_context("spawn")
    server, queue = serve("127.0.0.1", PORT), context.Queue()
    processes = [context.Process(target=node, args=(rank, options.repeats, queue)) for rank in range(NODES)]
    for process in processes:
        process.start()
    print(f"one step of {NODES} nodes, medians of {options.repeats}")
    print(f"{'optimizer':<20}{'d':>10}{'with sites':>14}{'without':>14}{'ratio':>8}  limit")
    measurements = []
    for name, dim, _ in CASES:
        told = sorted(queue.get(timeout=600) for _ in range(NODES))
        pairs = [pair for *_, times in told for pair in times]
        ours, theirs = (1e3 * median(p[k] for p in pairs) for k in (0, 1))
        case = f"{name}, d = {dim:,}"
        ratio = Measurement(
            "a step with sites over one without", median(a / b for a, b in pairs), limit=1.02, case=case
        )
        measurements += [Measurement("a step with sites", ours, "ms", case=case), ratio]
        print(
            f"{name:<20}{dim:>10}{ours:>11.3f} ms{theirs:>11.3f} ms{ratio.value:>8.3f}  {ratio.judgement}", flush=True
        )
    for process in processes:
        process.join(20)
        process.kill()
    server.shutdown()
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
