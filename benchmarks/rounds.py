"""The overhead of the contract: a Momentum Tracking round against the bare in-place recursion, side by side in one run.

    python benchmarks/rounds.py [--repeats 9] [--json FILE]

Both sides do the same arithmetic on preallocated buffers and mix in the same way; the difference is the method, the
state and the network. The bare round is written out below. Limits: 1.5x, 1.15x and 1.15x.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from _measurements import Measurement, finish, options_of
from torch import Tensor

from gossamer import MomentumTracking, topology
from gossamer.network import SimulatedNetwork
from gossamer.topology import Topology

BETA, LR = 0.9, 1e-3


def gossamer_round(graph: Topology, dim: int) -> Callable[[], None]:
    net = SimulatedNetwork(graph)
    x, grad = torch.randn(graph.n, dim), torch.randn(graph.n, dim)
    method = MomentumTracking(beta=BETA)
    state = method.initial(x, net)
    rounds = 0

    def one() -> None:
        nonlocal rounds
        method.step(state, x, grad, LR, net, rounds)
        rounds += 1

    return one


def bare_round(graph: Topology, dim: int) -> Callable[[], None]:
    """U <- beta U + G;  Y <- W Y + U - U_old;  X <- W X - eta Y, on six buffers."""
    n = graph.n
    x, grad = torch.randn(n, dim), torch.randn(n, dim)
    u, y, wx, wy = (torch.zeros(n, dim) for _ in range(4))
    product = bare_product(graph)

    def one() -> None:
        nonlocal y, wy
        product(x, wx)
        product(y, wy)
        wy.sub_(u)
        torch.add(grad, u, alpha=BETA, out=u)
        wy.add_(u)
        torch.sub(wx, wy, alpha=LR, out=x)
        y, wy = wy, y

    return one


def bare_product(graph: Topology) -> Callable[[Tensor, Tensor], None]:
    """W X written by hand: a matrix product for few nodes, row by row for many."""
    weights = torch.from_numpy(graph.at(0).dense()).float()
    if graph.n <= 100:
        return lambda v, out: torch.mm(weights, v, out=out)
    rows = [[(j, float(weights[i, j])) for j in weights[i].nonzero().flatten().tolist()] for i in range(graph.n)]

    def product(v: Tensor, out: Tensor) -> None:
        vectors, results = v.unbind(0), out.unbind(0)
        for result, terms in zip(results, rows, strict=True):
            (first, weight), *rest = terms
            torch.mul(vectors[first], weight, out=result)
            for j, weight in rest:
                result.add_(vectors[j], alpha=weight)

    return product


def seconds(one: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        one()
    return (time.perf_counter() - began) / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repetitions; medians are compared")
    options = options_of(parser)
    cases = [
        ("ring", topology.ring(25), 50, 2000, 1.5),
        ("ring", topology.ring(8), 62_050, 100, 1.15),
        ("random-regular:4", topology.random_regular(1024, 4), 44_470, 1, 1.15),
    ]
    print(f"one Momentum Tracking round, float32, {torch.get_num_threads()} threads, medians of {options.repeats}")
    print(f"{'graph':<18}{'N':>6}{'d':>8}{'gossamer':>14}{'bare':>14}{'ratio':>8}{'limit':>7}")
    measurements = []
    for name, graph, dim, count, limit in cases:
        ours, bare = gossamer_round(graph, dim), bare_round(graph, dim)
        seconds(ours, count), seconds(bare, count)
        pairs = [(seconds(ours, count), seconds(bare, count)) for _ in range(options.repeats)]
        mine, theirs = (1e3 * median(p[k] for p in pairs) for k in (0, 1))
        over = median(a / b for a, b in pairs)
        case = f"{name}, N = {graph.n}, d = {dim:,}"
        ours_ms, bare_ms, ratio = row = [
            Measurement("a round", mine, "ms", case=case),
            Measurement("a bare round", theirs, "ms", case=case),
            Measurement("a round over a bare one", over, limit=limit, case=case),
        ]
        measurements += row
        times = "".join(f"{1e3 * m.value:>11.1f} us" for m in (ours_ms, bare_ms))
        print(f"{name:<18}{graph.n:>6}{dim:>8}{times}{ratio.value:>8.2f}{ratio.limit:>7.2f}", flush=True)
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
