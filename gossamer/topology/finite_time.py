"""Schedules of small degree after which every node holds the exact average: base-(k+1) graphs.

Takezawa et al., "Beyond exponential graph: communication-efficient topologies for decentralized learning via
finite-time convergence", NeurIPS 2023. In a round, disjoint groups of nodes average, or pairs of nodes exchange a part.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise

import numpy as np

from gossamer._common.checks import node_count, whole_number
from gossamer.topology.mixing import Mixing
from gossamer.topology.topology import Topology

Edges = dict[tuple[int, int], float]
"""The weights of a round: W_ij = W_ji for i < j; what is left stays with the node."""
Nodes = Sequence[int]


def base(n: int, degree: int = 1) -> Topology:
    """The base-(k+1) graph for k = `degree`: at most k messages per node and round, the exact average after a period.

    n = p q, where p has all prime factors up to k + 1: q groups of p nodes average one after the other (p factors), and
    each of p groups of q nodes goes through the simple base-(k+1) graph. Where the simple base-(k+1) graph of all n
    nodes is as short, it is taken.

    >>> base(6), base(5)
    (Topology('base', n=6, degree=1, period=4), Topology('base', n=5, degree=1, period=5))
    """
    n, degree = _checked(n, degree)
    smooth = _smooth_part(n, degree + 1)
    groups = np.arange(n).reshape(smooth, n // smooth)
    inside = [_simple(group.tolist(), degree + 1) for group in groups]
    rounds = _together(inside) + _together([_averaging(line.tolist(), degree + 1) for line in groups.T])
    plain = _simple(range(n), degree + 1)
    return _topology("base", n, plain if len(plain) <= len(rounds) else rounds, partial(base, degree=degree))


def simple_base(n: int, degree: int = 1) -> Topology:
    """The simple base-(k+1) graph for k = `degree`: the digits of n to the base k + 1 are sizes of groups.

    Groups average inside, then each node of a smaller group meets one node of each part of the larger ones, and those
    parts average inside once more.

    >>> simple_base(6), simple_base(7, degree=2)
    (Topology('simple-base', n=6, degree=1, period=5), Topology('simple-base', n=7, degree=2, period=4))
    """
    n, degree = _checked(n, degree)
    return _topology("simple-base", n, _simple(range(n), degree + 1), partial(simple_base, degree=degree))


def _checked(n: int, degree: int) -> tuple[int, int]:
    return node_count(n), whole_number(degree, "the degree of a base graph", least=1)


def _topology(name: str, n: int, rounds: list[Edges], of_size: Callable[[int], Topology]) -> Topology:
    return Topology(name, [_mixing(n, edges) for edges in rounds or [{}]], of_size=of_size)


def _mixing(n: int, edges: Edges) -> Mixing:
    i, j = np.array(list(edges), dtype=np.int64).reshape(-1, 2).T
    weights = np.array(list(edges.values()))
    own = np.ones(n) - np.bincount(i, weights, n) - np.bincount(j, weights, n)
    own[np.abs(own) < 1e-15] = 0.0
    nodes = np.arange(n)
    return Mixing(
        n, np.concatenate([i, j, nodes]), np.concatenate([j, i, nodes]), np.concatenate([weights, weights, own])
    )


def _simple(nodes: Nodes, base: int) -> list[Edges]:
    """The rounds of the simple base graph on some nodes."""
    parts = _digits(nodes, base)
    rounds = _together([_averaging([v for block in blocks for v in block], base) for blocks in parts])
    if len(parts) == 1:
        return rounds
    # What comes after, for each part: it meets the smaller ones in one round, then its blocks average inside.
    later: list[list[Edges]] = []
    for number, blocks in enumerate(parts[:-1]):
        smaller = [v for other in parts[number + 1 :] for block in other for v in block]
        size = len(blocks[0])
        weight = size / (len(blocks) * size + len(smaller))
        meeting = {_pair(v, block[k]): weight for block in blocks for k, v in enumerate(smaller)}
        idle: list[Edges] = [{} for _ in range(number)]
        later.append([*idle, meeting, *_together([_averaging(block, base) for block in blocks])])
    return rounds + _together(later)


def _digits(nodes: Nodes, base: int) -> list[list[Nodes]]:
    """The nodes in parts of a b^p nodes, one for each digit a > 0 of their number, the largest first, in a blocks."""
    size = 1
    while size * base <= len(nodes):
        size *= base
    parts, first = [], 0
    while size:
        digit = (len(nodes) - first) // size
        bounds = range(first, first + digit * size + 1, size)
        if digit:
            parts.append([nodes[a:b] for a, b in pairwise(bounds)])
        first, size = first + digit * size, size // base
    return parts


def _averaging(nodes: Nodes, most: int) -> list[Edges]:
    """Rounds after which the nodes hold their average: along each axis of a box whose sides are at most `most`."""
    sides = _factors(len(nodes), most)
    box = np.array(nodes).reshape(sides or (1,))
    rounds = []
    for axis, side in enumerate(sides):
        lines = np.moveaxis(box, axis, -1).reshape(-1, side).tolist()
        rounds.append({_pair(a, b): 1 / side for line in lines for k, a in enumerate(line) for b in line[:k]})
    return rounds


def _together(schedules: list[list[Edges]]) -> list[Edges]:
    """Schedules on different nodes at the same time."""
    rounds: list[Edges] = [{} for _ in range(max(map(len, schedules), default=0))]
    for schedule in schedules:
        for edges, more in zip(rounds, schedule, strict=False):
            edges |= more
    return rounds


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _smooth_part(n: int, most: int) -> int:
    """The largest divisor of n whose prime factors are all at most `most`."""
    smooth = 1
    for factor in range(2, most + 1):
        while n % factor == 0:
            n, smooth = n // factor, smooth * factor
    return smooth


@cache
def _factors(n: int, most: int) -> tuple[int, ...]:
    """As few factors of n as possible, each at most `most`; the prime factors of n are at most that."""
    if n == 1:
        return ()
    choices = [(side, *_factors(n // side, most)) for side in range(2, min(n, most) + 1) if n % side == 0]
    return min(choices, key=len)
