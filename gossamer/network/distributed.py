"""One process per node: vectors travel point to point through torch.distributed."""

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.network.agreement import check_same, tell_all
from gossamer.network.contract import Pending, Ready
from gossamer.network.header import CHANGE, Header, complaint
from gossamer.network.messages import Envelope, Envelopes, Form, Message
from gossamer.network.waiting import Waiting, log
from gossamer.topology import Topology

TIMEOUT = 1800.0
"""Seconds until a silent peer is given up: long, because a site may be validating."""


NODE_VARIABLE = "GOSSAMER_NODE"
"""The environment variable that names this process's node where the program does not."""


@dataclass(frozen=True)
class _Plan:
    """What this node does in a round: the nodes it hears, those it tells, and W_ij for all it hears and itself."""

    senders: list[int]
    receivers: list[int]
    terms: list[tuple[int, float]]


class DistributedNetwork:
    """The network of a real run: this process holds one node's vectors [d] and talks to its neighbours only.

    `group` is the process group whose ranks are the nodes (by default all processes); one process needs none. `node` is
    this process's persistent node id, a number or a label of the topology, by default what the environment variable
    GOSSAMER_NODE says, else its rank: sums run in ascending node id, so that the bits do not depend on which rank a
    node got. `wire="bf16"` halves the messages: they are then mixed in difference form, x_i + sum_j W_ij (q(x_j) -
    q(x_i)), which keeps the mean. `timeout` is how many seconds a silent peer is waited for.

    The first message, or `join`, makes sure that all nodes hold the same graph.

    >>> from gossamer import topology
    >>> DistributedNetwork(topology.complete(1), None).n
    1
    """

    def __init__(
        self,
        topology: Topology,
        group: dist.ProcessGroup | None = None,
        *,
        node: int | str | None = None,
        wire: Literal["bf16"] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        if wire not in (None, "bf16"):
            raise GossamerError(f"The wire format is None (as computed) or 'bf16' (half the bytes), not {wire!r}.")
        if not timeout > 0:
            raise GossamerError(f"The timeout is {timeout!r}, but it must be a number of seconds above 0.")
        if group is None and topology.n > 1:
            group = dist.group.WORLD if dist.is_initialized() else None
        size = 1 if group is None else group.size()
        if size != topology.n:
            raise GossamerError(
                f"The graph '{topology.name}' has {topology.n} nodes, but {size} process{'es' if size > 1 else ''} "
                f"take{'' if size > 1 else 's'} part; start one process per node (or per part of a node, with group=)."
            )
        self.topology = topology
        self.group = group
        self.n = topology.n
        self.wire = wire
        self.settings = (0.0, 0)
        """The step size and a hash of all settings, which every message carries for comparison."""
        self.now = 0
        """The round that messages of an average name: what calls it is not told the round."""
        self.stop: int | None = None
        """The round before which all nodes stop, once somebody has asked for it: word of it goes with every message."""
        self.node = self._own_id(node, 0 if group is None else group.rank())
        self.waiting = Waiting(timeout)
        self._ranks: list[int] = []
        self._coalesces = group is not None and dist.get_backend(group) == "nccl"
        self._neighbours = [int(j) for j in topology.graph.neighbours(self.node)]
        self._plans: list[_Plan | None] = [None] * topology.period
        self._envelopes = Envelopes()
        self._flying: list[_Arriving] = []
        self._serial = self._sent_bytes = self._received_bytes = self._sent = self._received = 0

    # The verbs of the contract ---------------------------------------------------------------------------------------

    def mix(self, *vectors: Tensor, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Send to the receivers of the round; sum_j W_ij v_j is made when it is waited for, in ascending node id."""
        if out is None:
            out = tuple(torch.empty_like(v) for v in vectors)
        if self.n == 1:
            torch._foreach_copy_(list(out), list(vectors))
            return Ready(*out)
        plan = self._plan(round)
        envelope = self._envelope(vectors, outgoing=1, lossy=self.wire is not None)
        message = envelope.outgoing[0]
        message.fill(vectors)
        if envelope.own is not message.vectors:
            torch._foreach_copy_(envelope.own, list(vectors))
        return self._post(_Mixed(self, envelope, out, plan), [message] * len(plan.receivers), round)

    def average(self, vector: Tensor) -> Tensor:
        """The exact mean: every rank sums a share of all vectors, in ascending node id, and all collect the shares."""
        if self.n == 1:
            return vector.clone()
        share = -(-vector.numel() // self.n)
        padded = vector.new_zeros(self.n * share)
        padded[: vector.numel()] = vector.reshape(-1)
        mine, others = padded.view(self.n, share), [j for j in range(self.n) if j != self.node]
        sums = list(self._swap(mine[others], others))
        sums.insert(self.node, mine[self.node])
        total = sums[0].clone()
        for part in sums[1:]:
            total.add_(part)
        shares = list(self._swap(total.div_(self.n).expand(len(others), share), others))
        shares.insert(self.node, total)
        return torch.cat(shares)[: vector.numel()].view_as(vector)

    def _swap(self, rows: Tensor, peers: list[int]) -> Tensor:
        """Row k goes to the k-th peer; the rows that the peers sent."""
        out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        envelope = self._envelope([rows[0]], outgoing=len(peers), lossy=False)
        for k, message in enumerate(envelope.outgoing):
            message.vectors[0].copy_(rows[k])
        pending = _Swapped(self, envelope, (out,), _Plan(peers, peers, []))
        return self._post(pending, envelope.outgoing, self.now).wait()[0]

    def spread(self, vector: Tensor) -> Tensor:
        """[d] -> [degree, d], one row per neighbour in ascending node id."""
        return vector.expand(len(self._neighbours), *vector.shape).clone()

    def collect(self, rows: Tensor) -> Tensor:
        """[degree, d] -> [d], added in ascending node id."""
        return rows.sum(0)

    def exchange(self, *rows: Tensor, round: int) -> Pending:
        """Row k goes to the k-th neighbour and comes back as that neighbour's row for this node."""
        if self.wire is not None:
            raise GossamerError(
                "wire='bf16' rounds what is sent, which relayed sums never forget, so this method needs exact "
                "messages; leave out wire=."
            )
        out = tuple(torch.empty_like(r) for r in rows)
        if not self._neighbours:
            return Ready(*out)
        envelope = self._envelope([r[0] for r in rows], outgoing=len(self._neighbours), lossy=False)
        for k, message in enumerate(envelope.outgoing):
            torch._foreach_copy_(message.vectors, [r[k] for r in rows])
        plan = _Plan(self._neighbours, self._neighbours, [])
        return self._post(_Swapped(self, envelope, out, plan), envelope.outgoing, round)

    # What real nodes need besides ------------------------------------------------------------------------------------

    def join(self, facts: dict[str, Any] | None = None, own: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Meet all nodes: an error if they differ in the graph or in `facts`; else what each says of its `own`.

        The answers are in the order of node ids. All nodes must call it equally often.
        """
        graph = f"{self.topology!r} {self.topology.fingerprint[:12]}"
        same = {"graph": graph, "wire format": self.wire or "exact", **(facts or {})}
        if self.group is None:
            return [own or {}]
        told = tell_all(
            self.group, {"node": self.node, "same": same, "own": own or {}}, self.waiting, "the meeting of all nodes"
        )
        check_same([t["same"] for t in told], self.group.rank())
        nodes = [t["node"] for t in told]
        if len(set(nodes)) < self.n:
            twice = next(i for i in nodes if nodes.count(i) > 1)
            ranks = " and ".join(str(rank) for rank, i in enumerate(nodes) if i == twice)
            raise GossamerError(
                f"The ranks {ranks} all say that they are {self.name(twice)}; give every process its own node=."
            )
        self._ranks = [nodes.index(i) for i in range(self.n)]
        return [told[rank]["own"] for rank in self._ranks]

    def announce_change(self, round: int, room: int, to_all: bool = False) -> None:
        """Before nodes that are under way `join` anew: make sure that the neighbours are about to do so, too.

        Bare headers are exchanged in the place of the next ordinary message, that of `round`, which holds at most
        `room` bytes. Where one side sends the one and the other side the other, both are told instead of waiting.
        """
        if self.n == 1 or self._coalesces:  # NCCL takes no message of unforeseen length
            return
        others = [j for j in range(self.n) if j != self.node]
        plan = _Plan(others, others, []) if to_all else self._plan(round)
        here = torch.device("cpu")
        envelope = Envelope(
            Form((torch.Size([room]),), torch.uint8, here, outgoing=1),
            [Message((torch.Size([0]),), torch.uint8, here)],
            own=[],
        )
        usual, self.settings = self.settings, (self.settings[0], CHANGE)
        try:
            self._post(_Notice(self, envelope, (), plan), envelope.outgoing * len(plan.receivers), round).wait()
        finally:
            self.settings = usual
        self._sends_done(envelope)
        self._envelopes.forget(envelope.form)

    def broadcast(self, vector: Tensor, node: int = 0) -> None:
        """Overwrite `vector` with that of `node`."""
        if self.n > 1:
            self._ready()
            with self.waiting.everyone("the start from equal parameters"):
                self._finish(dist.broadcast(vector, group=self.group, group_src=self._ranks[node], async_op=True))

    def drain(self) -> None:
        """Wait for all messages under way, those of this node and those to it."""
        for pending in list(self._flying):
            pending.wait()
        for envelopes in self._envelopes.idle.values():
            for envelope in envelopes:
                self._sends_done(envelope)

    def close(self) -> None:
        """Drain, so that this process may end without taking its neighbours' last message along. Called at exit."""
        _unclosed.discard(self)
        if self.waiting.failure is None:
            self.drain()

    def stats(self) -> dict[str, Any]:
        """Bytes and messages so far, and how many seconds this node waited for each peer."""
        return {
            "bytes_sent": self._sent_bytes,
            "bytes_received": self._received_bytes,
            "messages_sent": self._sent,
            "messages_received": self._received,
            "wait_seconds": {self._label(peer): seconds for peer, seconds in sorted(self.waiting.seconds.items())},
        }

    def name(self, node: int) -> str:
        """A node as sentences call it: its number, its label and, once known, its rank."""
        label = f" ({self.topology.labels[node]})" if self.topology.labels else ""
        rank = f" [rank {self._ranks[node]}]" if self._ranks and self._ranks[node] != node else ""
        return f"node {node}{label}{rank}"

    # Inside ----------------------------------------------------------------------------------------------------------

    def _own_id(self, node: int | str | None, rank: int) -> int:
        if node is None and self.n > 1:
            given = os.environ.get(NODE_VARIABLE, "")
            node = int(given) if given.isdecimal() else given or None
        if node is None:
            return rank
        if isinstance(node, str):
            labels = self.topology.labels or ()
            if node not in labels:
                known = ", ".join(labels) or "numbered"
                raise GossamerError(f"The graph has no node called '{node}'; its nodes are {known}.")
            return labels.index(node)
        if not 0 <= node < self.n:
            raise GossamerError(f"node={node} does not exist: the graph has the nodes 0 to {self.n - 1}.")
        return node

    def _label(self, node: int) -> str | int:
        return self.topology.labels[node] if self.topology.labels else node

    def _ready(self) -> None:
        self.waiting.check()
        if not self._ranks:
            self.join()

    def _plan(self, round: int) -> _Plan:
        index = round % self.topology.period
        plan = self._plans[index]
        if plan is None:
            mixing = self.topology.at(index)
            row = slice(mixing.indptr[self.node], mixing.indptr[self.node + 1])
            plan = _Plan(
                [int(j) for j in mixing.senders(self.node)],
                [int(j) for j in mixing.receivers(self.node)],
                list(zip(mixing.indices[row].tolist(), mixing.values[row].tolist(), strict=True)),
            )
            self._plans[index] = plan
        return plan

    def _envelope(self, vectors: tuple[Tensor, ...] | list[Tensor], outgoing: int, lossy: bool) -> Envelope:
        """Buffers that are free: sent two messages ago, or new."""
        self._ready()
        first = vectors[0]
        form = Form(
            tuple(v.shape for v in vectors),
            torch.bfloat16 if lossy else first.dtype,
            first.device,
            outgoing,
            first.dtype if lossy else None,
        )
        envelope = self._envelopes.take(form)
        self._sends_done(envelope)
        return envelope

    def _post(self, pending: "_Arriving", outgoing: list[Message], round: int) -> "_Arriving":
        """Let the messages leave, and make ready for those to come."""
        plan, envelope = pending.plan, pending.envelope
        envelope.round = round
        pending.header = Header(round, self._serial, self.node, *self.settings, self.stop or 0)
        self._serial += 1
        for message in envelope.outgoing:
            message.write(pending.header)
        incoming = self._envelopes.receivers(envelope.form, len(plan.senders))
        sends, receives = self._transmit(plan, outgoing, incoming, round)
        envelope.sends = list(zip(plan.receivers, sends, strict=True))
        pending.receives = list(zip(plan.senders, receives, incoming, strict=True))
        self._count(sent=len(outgoing), bytes=sum(m.bytes for m in outgoing))
        self._flying.append(pending)
        _close_at_exit(self)
        return pending

    def _transmit(
        self, plan: _Plan, outgoing: list[Message], incoming: list[Message], round: int
    ) -> tuple[list[Any], list[Any]]:
        """Start to receive and to send, peers ascending; the work objects of both."""
        receives = [(dist.irecv, j, m.raw) for j, m in zip(plan.senders, incoming, strict=True)]
        sends = [(dist.isend, j, m.raw) for j, m in zip(plan.receivers, outgoing, strict=True)]
        if self._coalesces and receives + sends:
            operations = [
                dist.P2POp(verb, raw, group=self.group, group_peer=self._ranks[j]) for verb, j, raw in receives + sends
            ]
            works = dist.batch_isend_irecv(operations)
            if len(works) != len(operations):  # one work for all
                works = works[-1:] * len(operations)
            return works[len(receives) :], works[: len(receives)]
        return (
            [self._start(dist.isend, j, round, tensor=raw, group_dst=self._ranks[j]) for _, j, raw in sends],
            [self._start(dist.irecv, j, round, tensor=raw, group_src=self._ranks[j]) for _, j, raw in receives],
        )

    def _start(self, verb: Any, peer: int, round: int, **arguments: Any) -> Any:
        """Start one transfer; a connection that is already closed shows here."""
        try:
            return verb(group=self.group, **arguments)
        except RuntimeError as error:
            self.waiting.fail(error, self.name(peer), round, "take")

    def _receive(self, pending: "_Arriving") -> None:
        """Wait for all messages, in ascending node id, and check that they belong to this round."""
        for peer, work, message in pending.receives:
            self.waiting.message(work, peer, self.name, pending.header.round)
            header = message.read()
            problem = complaint(pending.header, header)
            if problem:
                raise self.waiting.refuse(f"N{self.name(peer)[1:]} {problem}")
            if header and header.stop:
                self.stop = min(header.stop, self.stop or header.stop)
            self._received += 1
            self._received_bytes += message.bytes
        self._flying.remove(pending)

    def _sends_done(self, envelope: Envelope) -> None:
        for peer, work in envelope.sends:
            self.waiting.message(work, peer, self.name, envelope.round, doing="take")
        envelope.sends = []

    def _finish(self, work: Any) -> None:
        work.wait(self.waiting.timeout)

    def _count(self, sent: int, bytes: int) -> None:
        self._sent += sent
        self._sent_bytes += bytes


class _Arriving(ABC):
    """Messages under way to this node; the result is made once, when it is first waited for."""

    header: Header
    receives: list[tuple[int, Any, Message]]

    def __init__(self, net: DistributedNetwork, envelope: Envelope, out: tuple[Tensor, ...], plan: _Plan) -> None:
        self.net, self.envelope, self.out, self.plan = net, envelope, out, plan
        self.arrived = False

    def wait(self) -> tuple[Tensor, ...]:
        """The vectors that arrived."""
        if not self.arrived:
            self.net._receive(self)
            with torch.no_grad():
                self.unpack()
            self.arrived = True
            self.net._envelopes.give_back(self.envelope, (message for _, _, message in self.receives))
        return self.out

    @abstractmethod
    def unpack(self) -> None:
        """Fill `out` from the messages."""


class _Mixed(_Arriving):
    """sum_j W_ij v_j, or x_i + sum_j W_ij (q(x_j) - q(x_i)) where the wire is coarser than the vectors."""

    def unpack(self) -> None:
        arrived = {peer: message.vectors for peer, _, message in self.receives}
        own, node = self.envelope.own, self.net.node
        if self.envelope.form.exact is None:
            arrived[node] = own
            for k, result in enumerate(self.out):
                (first, weight), *rest = self.plan.terms
                torch.mul(arrived[first][k], weight, out=result)
                for j, weight in rest:
                    result.add_(arrived[j][k], alpha=weight)
            return
        rounded = self.envelope.outgoing[0].vectors
        for k, result in enumerate(self.out):
            mine = rounded[k].to(result.dtype)
            result.copy_(own[k])
            for j, weight in self.plan.terms:
                if j != node:
                    result.add_(arrived[j][k].to(result.dtype).sub_(mine), alpha=weight)


class _Swapped(_Arriving):
    """Row k holds what the k-th neighbour sent."""

    def unpack(self) -> None:
        for k, (_, _, message) in enumerate(self.receives):
            torch._foreach_copy_([rows[k] for rows in self.out], message.vectors)


class _Notice(_Arriving):
    """Headers, whose coming is all that matters."""

    def unpack(self) -> None:
        pass


_unclosed: set[DistributedNetwork] = set()
_hooked: int | None = None


def _close_at_exit(net: DistributedNetwork) -> None:
    """Remember to close the network when this process ends, even if nobody refers to it any more."""
    global _hooked
    if net in _unclosed:
        return
    _unclosed.add(net)
    if _hooked != os.getpid():
        # Unlike atexit this also runs in a multiprocessing child, which forgets what was registered before the fork.
        Finalize(None, _close_all, exitpriority=100)
        _hooked = os.getpid()


def _close_all() -> None:
    """At exit: let the last messages arrive. A process that fails ends at once instead, and its neighbours notice."""
    failing = getattr(sys, "last_value", None) is not None
    for net in list(_unclosed):
        try:
            if not failing:
                net.close()
        except GossamerError as error:
            log.warning("%s", error)
