"""Every node in a thread of its own, holding nothing but its own vectors [d].

The network of a real run without sockets: it shows that a method's lines work on one node's vectors as they do on the
stack of all, and that messages sent in a round meet the ones they should.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import torch
from torch import Tensor

from gossamer.compression import Compressed
from gossamer.methods import Method
from gossamer.network.contract import Pending
from gossamer.testing.trial import Trial
from gossamer.topology import Topology

PATIENCE = 30.0


class _NeighbourFailed(Exception):
    """Another node failed first; its error is the one to show."""


class _Wires:
    """One queue for every ordered pair of nodes, and a board for averages."""

    def __init__(self, n: int) -> None:
        self.queues = {(i, j): SimpleQueue[tuple[Tensor, ...] | None]() for i in range(n) for j in range(n) if i != j}
        self.barrier = threading.Barrier(n, timeout=PATIENCE)
        self.board: list[Tensor] = [torch.empty(0)] * n

    def receive(self, sender: int, receiver: int) -> tuple[Tensor, ...]:
        vectors = self.queues[sender, receiver].get(timeout=PATIENCE)
        if vectors is None:
            raise _NeighbourFailed
        return vectors

    def hang_up(self, node: int) -> None:
        """Wake all who wait for a node that failed."""
        self.barrier.abort()
        for (sender, _), queue in self.queues.items():
            if sender == node:
                queue.put(None)


class _Averaging:
    """A mixed message under way: its weighted sum is made when it is waited for, once."""

    def __init__(self, node: "ThreadNode", own: tuple[Tensor, ...], round: int, out: tuple[Tensor, ...]) -> None:
        self._node, self._own, self._round, self._out = node, own, round, out
        self._arrived = False

    def wait(self) -> tuple[Tensor, ...]:
        if not self._arrived:
            node, mixing = self._node, self._node.topology.at(self._round)
            first, last = mixing.indptr[node.id], mixing.indptr[node.id + 1]
            for result in self._out:
                result.zero_()
            for j, weight in zip(mixing.indices[first:last].tolist(), mixing.values[first:last].tolist(), strict=True):
                vectors = self._own if j == node.id else node.wires.receive(j, node.id)
                for result, vector in zip(self._out, vectors, strict=True):
                    result.add_(vector, alpha=weight)
            self._arrived = True
        return self._out


class _Swapping:
    """Edge rows under way."""

    def __init__(self, node: "ThreadNode", rows: tuple[Tensor, ...]) -> None:
        self._node, self._out = node, tuple(torch.empty_like(r) for r in rows)
        self._arrived = False

    def wait(self) -> tuple[Tensor, ...]:
        if not self._arrived:
            for k, j in enumerate(self._node.neighbours):
                for result, row in zip(self._out, self._node.wires.receive(j, self._node.id), strict=True):
                    result[k] = row
            self._arrived = True
        return self._out


def _arrived(vector: Tensor | Compressed) -> Tensor:
    """What a receiver gets: a copy or, of a compressed vector, what its bytes say."""
    if isinstance(vector, Compressed):
        return vector.compressor.decode(vector.wire(), vector.values)
    return vector.clone()


class ThreadNode:
    """One node's end of the network."""

    def __init__(self, topology: Topology, node: int, wires: _Wires) -> None:
        self.topology, self.id, self.wires = topology, node, wires
        self.n = topology.n
        self.neighbours = [int(j) for j in topology.graph.neighbours(node)]

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Send to the receivers of this round; wait for its senders later."""
        own = tuple((v.values if isinstance(v, Compressed) else v).clone() for v in vectors)
        sent = tuple(map(_arrived, vectors))
        for j in self.topology.at(round).receivers(self.id):
            self.wires.queues[self.id, int(j)].put(sent)
        return _Averaging(self, own, round, out or tuple(torch.empty_like(v) for v in own))

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """The mean over all nodes, in ascending node id."""
        self.wires.board[self.id] = vector.clone()
        self.wires.barrier.wait()
        mean = torch.stack(self.wires.board).mean(0)
        self.wires.barrier.wait()
        return mean

    def spread(self, vector: Tensor) -> Tensor:
        """[d] -> [degree, d]."""
        return vector.expand(len(self.neighbours), *vector.shape).clone()

    def collect(self, rows: Tensor) -> Tensor:
        """[degree, d] -> [d]."""
        return rows.sum(0)

    def exchange(self, *rows: Tensor, round: int) -> Pending:
        """Row k goes to the k-th neighbour."""
        for k, j in enumerate(self.neighbours):
            self.wires.queues[self.id, j].put(tuple(r[k].clone() for r in rows))
        return _Swapping(self, rows)


def run_in_threads(method: Method, trial: Trial) -> Tensor:
    """The last x [N, d] of a run in which every node is a thread with its own vectors."""
    n = trial.topology.n
    wires = _Wires(n)

    def node(i: int) -> Tensor:
        own, net = copy.deepcopy(method), ThreadNode(trial.topology, i, wires)
        x = trial.start()[i].clone()
        try:
            state = own.initial(x, net)
            for r in range(trial.rounds):
                own.step(state, x, trial.gradient(x, r, node=i), trial.lr(r), net, r)
        except BaseException:
            wires.hang_up(i)
            raise
        return x

    with ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(node, i) for i in range(n)]
    errors = [e for f in futures if (e := f.exception())]
    if errors:
        raise next((e for e in errors if not isinstance(e, _NeighbourFailed | threading.BrokenBarrierError)), errors[0])
    return torch.stack([f.result() for f in futures])
