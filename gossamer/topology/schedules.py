"""Topologies that change from round to round."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from gossamer._common.checks import node_count, probability, whole_number
from gossamer.errors import InputError
from gossamer.topology.graph import Graph, Ints, row_numbers
from gossamer.topology.mixing import Mixing, weigh
from gossamer.topology.random_graphs import ATTEMPTS, refuse_too_many_edges
from gossamer.topology.topology import Topology


def one_peer_exponential(n: int) -> Topology:
    """In round k node i sends to i + 2^(k mod ceil(log2 n)) mod n and keeps one half: directed, one message a round.

    After log2 n rounds every node holds the exact average if n is a power of two.

    >>> one_peer_exponential(8)
    Topology('one-peer-exponential', n=8, degree=1, period=3)
    """
    n = node_count(n)
    nodes = np.arange(n)
    rounds = [_halves(nodes, (nodes - (1 << k)) % n) for k in range((n - 1).bit_length())]
    return Topology("one-peer-exponential", rounds or [_halves(nodes, nodes)], of_size=one_peer_exponential)


def random_matchings(n: int, period: int = 100, seed: int = 0) -> Topology:
    """In every round a random matching, as large as possible; matched pairs average. With odd n one node is idle.

    >>> random_matchings(8, period=10)
    Topology('random-matchings', n=8, degree=1, period=10)
    """
    n = node_count(n)
    period = whole_number(period, "the period of a schedule", least=1)
    rng = np.random.default_rng(whole_number(seed, "the seed"))
    pairs = n // 2
    refuse_too_many_edges(n, pairs * period)
    for _ in range(ATTEMPTS):
        partners = np.tile(np.arange(n), (period, 1))
        for row in partners:
            a, b = rng.permutation(n)[: 2 * pairs].reshape(2, pairs)
            row[a], row[b] = b, a
        together = np.stack([np.tile(np.arange(n), period), partners.ravel()], axis=1)
        if Graph(n, together[together[:, 0] != together[:, 1]]).is_connected:
            of_size = partial(random_matchings, period=period, seed=seed)
            return Topology("random-matchings", [_halves(np.arange(n), row) for row in partners], of_size=of_size)
    raise InputError(
        f"Random matchings of {n} nodes do not connect all of them within {period} rounds; use a longer period."
    )


def epidemic(n: int, peers: int = 1, period: int = 100, seed: int = 0) -> Topology:
    """In every round each node sends to `peers` random others and hears from as many; all weights are 1/(peers + 1).

    De Vos et al., "Epidemic learning: boosting decentralized learning with randomized communication", NeurIPS 2023, in
    the form that keeps the average: the nodes stand in a circle in random order, and all send over the same distances.

    >>> epidemic(8, peers=2)
    Topology('epidemic', n=8, degree=2, period=100)
    """
    n = node_count(n)
    peers = whole_number(peers, "the peers of an epidemic round", least=1)
    if peers >= n > 1:
        raise InputError(f"A node of {n} can send to at most {n - 1} others in a round, not to {peers} peers.")
    period = whole_number(period, "the period of a schedule", least=1)
    rng = np.random.default_rng(whole_number(seed, "the seed"))
    for _ in range(ATTEMPTS):
        rounds = [_circle(rng.permutation(n), rng.permutation(n - 1)[:peers] + 1) for _ in range(period)]
        together = np.concatenate([np.stack([row_numbers(m.indptr), m.indices], axis=1) for m in rounds])
        if Graph(n, together[together[:, 0] != together[:, 1]]).is_connected:
            return Topology("epidemic", rounds, of_size=partial(epidemic, peers=peers, period=period, seed=seed))
    raise InputError(
        f"Random peers do not connect all of {n} nodes within {period} rounds; use a longer period or more peers."
    )


def lossy(graph: Topology, drop: float = 0.1, period: int = 100, seed: int = 0) -> Topology:
    """The same graph with links that fail: in every round each edge is skipped with the probability `drop`.

    Both ends skip it, and both keep its weight for themselves: every round is doubly stochastic again. The failures
    repeat after `period` rounds (of a schedule: after the next multiple of its own period).

    >>> from gossamer.topology import ring
    >>> lossy(ring(8), drop=0.1)
    Topology('lossy ring', n=8, degree=2, period=100)
    """
    drop = probability(drop, "the share of lost exchanges ('drop')")
    if not graph.is_symmetric:
        raise InputError(
            f"Links are skipped on both ends, but some of '{graph.name}' carry messages one way only; use an "
            f"undirected graph such as ring."
        )
    rng = np.random.default_rng(whole_number(seed, "the seed"))
    period = -(-whole_number(period, "the period of a schedule", least=1) // graph.period) * graph.period
    of_size = graph.of_size and partial(_lossy_of_size, graph.of_size, drop, period, seed)
    rounds = [_without(graph.at(r), drop, rng) for r in range(period)]
    return Topology(f"lossy {graph.name}", rounds, graph.labels, of_size=of_size)


def _lossy_of_size(of_size: Callable[[int], Topology], drop: float, period: int, seed: int, n: int) -> Topology:
    return lossy(of_size(n), drop, period, seed)


def in_turn(parts: Iterable[Topology | Graph | Mixing], weights: str = "metropolis") -> Topology:
    """A schedule that goes through `parts` in turn: one round per matrix or graph, a whole period per topology.

    Plain graphs get the weights of that name. A single graph need not be connected, the union of all must be.

    >>> pairs = Graph(4, [(0, 1), (2, 3)]), Graph(4, [(1, 2), (3, 0)])
    >>> in_turn(pairs)
    Topology('in-turn', n=4, degree=1, period=2)
    """
    rounds: list[Mixing] = []
    labels = None
    for part in parts:
        if isinstance(part, Topology):
            rounds += part.mixings
        elif isinstance(part, Graph):
            rounds.append(weigh(part, weights))
        elif isinstance(part, Mixing):
            rounds.append(part)
        else:
            raise InputError(f"A schedule takes topologies, graphs and mixing matrices, not {type(part).__name__}.")
        if not isinstance(part, Mixing) and part.labels is not None:
            if labels not in (None, part.labels):
                raise InputError("All parts of a schedule must name their nodes alike and in the same order.")
            labels = part.labels
    return Topology("in-turn", rounds, labels)


def _halves(nodes: Ints, senders: Ints) -> Mixing:
    """Every node averages its own vector with that of one sender (possibly itself)."""
    half = np.full(2 * len(nodes), 0.5)
    return Mixing(len(nodes), np.concatenate([nodes, nodes]), np.concatenate([nodes, senders]), half)


def _circle(order: Ints, distances: Ints) -> Mixing:
    """Nodes in a circle, each of which hears from those at the `distances` before it; all weights are equal."""
    n, share = len(order), 1 / (len(distances) + 1) if len(order) > 1 else 1.0
    hears = [np.roll(order, distance) for distance in ([0, *distances] if n > 1 else [0])]
    receivers = np.tile(order, len(hears))
    return Mixing(n, receivers, np.concatenate(hears), np.full(len(receivers), share))


def _without(mixing: Mixing, drop: float, rng: np.random.Generator) -> Mixing:
    """The weights of a round without some edges drawn by lot."""
    receivers, senders = row_numbers(mixing.indptr), mixing.indices
    upper = receivers < senders
    keys = receivers[upper] * mixing.n + senders[upper]
    gone = keys[rng.random(len(keys)) < drop]
    both = np.concatenate([gone, gone % mixing.n * mixing.n + gone // mixing.n])
    skipped = np.isin(receivers * mixing.n + senders, both)
    return Mixing(
        mixing.n, receivers, np.where(skipped, receivers, senders), mixing.values, allow_negative=mixing.allow_negative
    )
