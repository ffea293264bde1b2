"""Messages between real nodes: how they leave, how they are waited for, checked, counted and unpacked."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.compression import Compressed
from gossamer.errors import DivergenceError, GossamerError
from gossamer.network.faults import Fault
from gossamer.network.waiting import Waiting
from gossamer.network.wire import END, Envelope, Envelopes, Form, Header, Message, is_finite, mismatch
from gossamer.topology import Topology

_MOMENT = 1.0
"""Seconds in which neighbours take word of a fault, if they are not busy."""
_NICER = 5
"""How much nicer gloo's threads are than the rest: with 10, messages are late where every processor is busy."""


@dataclass(frozen=True)
class Peers:
    """Whom a node receives from and sends to in a round, and W_ij for its senders and itself."""

    senders: list[int]
    receivers: list[int]
    weights: list[tuple[int, float]]

    @classmethod
    def mixing(cls, topology: Topology, node: int, round: int) -> "Peers":
        """Those of a round of mixing.

        >>> from gossamer import topology
        >>> Peers.mixing(topology.one_peer_exponential(4), node=0, round=1)
        Peers(senders=[2], receivers=[2], weights=[(0, 0.5), (2, 0.5)])
        """
        matrix = topology.at(round)
        row = slice(matrix.indptr[node], matrix.indptr[node + 1])
        return cls(
            [int(j) for j in matrix.senders(node)],
            [int(j) for j in matrix.receivers(node)],
            list(zip(matrix.indices[row].tolist(), matrix.values[row].tolist(), strict=True)),
        )

    @classmethod
    def both_ways(cls, nodes: Iterable[int]) -> "Peers":
        """Send to all of the nodes and receive from all of them, without weights."""
        peers = [int(j) for j in nodes]
        return cls(peers, peers, [])


class Messenger:
    """One node's connections to its peers. `ranks` is filled once the nodes have met."""

    def __init__(self, topology: Topology, group: dist.ProcessGroup | None, node: int, waiting: Waiting) -> None:
        self.group, self.node, self.waiting = group, node, waiting
        if group is not None:
            _let_gloo_wait_its_turn()
        self.settings = (0.0, 0)
        """The step size and a hash of all settings, which every message carries for comparison."""
        self.stop: int | None = None
        """The round before which all nodes stop, once one was asked to: every message passes it on."""
        self.ranks: list[int] = []
        """The rank of every node."""
        self.coalesces = isinstance(group, dist.ProcessGroup) and dist.get_backend(group) == "nccl"
        self.envelopes = Envelopes()
        self._labels = topology.labels
        self._flying: list[Arriving] = []
        self._neighbours = {int(j) for j in topology.graph.neighbours(node)}
        self._told: list[Any] = []
        self._lately: list[int] = []
        self.room = self.round = 0
        """The bytes of the longest message so far, and the round of the last."""
        self.last: Arriving | None = None
        """What arrived last."""
        self.probe: Callable[[Arriving], None] | None = None
        """Shown all that arrives, for measurements."""
        waiting.pass_on = self.tell
        self._serial = self._sent_bytes = self._received_bytes = self._sent = self._received = 0

    def name(self, node: int) -> str:
        """A node as messages to the user call it: its number, its label and, once known, its rank."""
        label = f" ({self._labels[node]})" if self._labels and node < len(self._labels) else ""
        known = node < len(self.ranks)  # a message that was not written by a node may speak of any
        rank = f" [rank {self.ranks[node]}]" if known and self.ranks[node] != node else ""
        return f"node {node}{label}{rank}"

    def envelope(self, vectors: Sequence[Tensor], outgoing: int, wire: torch.dtype | None = None) -> Envelope:
        """Buffers that are free: sent two messages ago, or new. `wire` is the type in which vectors travel."""
        first = vectors[0]
        exact = None if wire is None else first.dtype
        form = Form(tuple(v.shape for v in vectors), wire or first.dtype, first.device, outgoing, exact)
        envelope = self.envelopes.take(form)
        self.finish_sends(envelope)
        return envelope

    def post(self, pending: "Arriving", outgoing: list[Message], round: int) -> "Arriving":
        """Start to send the messages and to receive the peers'."""
        peers, envelope = pending.peers, pending.envelope
        envelope.round = round
        pending.header = Header(round, self._serial, self.node, *self.settings, self.stop or 0)
        self._serial += 1
        for message in envelope.outgoing:
            message.write(pending.header)
        incoming = self.envelopes.receivers(envelope.form, len(peers.senders))
        sends, receives = self._transmit(peers, outgoing, incoming, round)
        envelope.sends = list(zip(peers.receivers, sends, strict=True))
        pending.receives = list(zip(peers.senders, receives, incoming, strict=True))
        self._sent += len(outgoing)
        self._sent_bytes += sum(m.bytes for m in outgoing)
        self._lately = peers.receivers
        self.room, self.round = max(self.room, envelope.outgoing[0].bytes), round
        self._flying.append(pending)
        return pending

    def _transmit(
        self, peers: Peers, outgoing: list[Message], incoming: list[Message], round: int
    ) -> tuple[list[Any], list[Any]]:
        """Start to receive and to send, peers ascending; the work objects of both."""
        receives = [(dist.irecv, j, m.raw) for j, m in zip(peers.senders, incoming, strict=True)]
        sends = [(dist.isend, j, m.raw) for j, m in zip(peers.receivers, outgoing, strict=True)]
        if self.coalesces and receives + sends:
            operations = [
                dist.P2POp(verb, raw, group=self.group, group_peer=self.ranks[j]) for verb, j, raw in receives + sends
            ]
            works = dist.batch_isend_irecv(operations)
            if len(works) != len(operations):  # one work for all
                works = works[-1:] * len(operations)
            return works[len(receives) :], works[: len(receives)]
        # gloo sends data when word has come that the other end receives. Behind our own data that word would be late:
        # the two would send one after the other instead of at the same time.
        received = [self._start(self.group.recv, j, round, raw) for _, j, raw in receives]  # type: ignore[union-attr]
        return [self._start(self.group.send, j, round, raw) for _, j, raw in sends], received  # type: ignore[union-attr]

    def _start(self, verb: Any, peer: int, round: int, raw: Tensor) -> Any:
        """Start one transfer; a connection that is already closed shows here.

        Unlike dist.isend the group's own verb also works at exit, after destroy_process_group.
        """
        try:
            return verb([raw], self.ranks[peer], 0)
        except RuntimeError as error:
            raise self.waiting.lost(error, peer, self.name, round) from None

    def tell(self, fault: Fault) -> None:
        """Send word of a fault in place of the next message, to all who may wait for one; for a moment, wait for them.

        NCCL takes no message of unforeseen length: there, and where connections are closed, the board tells.
        """
        if self.group is None or self.coalesces or not self.ranks:
            return
        message = Message((torch.Size([0]),), torch.uint8, torch.device("cpu"))
        message.write(Header(fault.round, self._serial, self.node, fault.lr, 0, fault.round, fault.word()))
        peers = self._neighbours.union(*(pending.peers.receivers for pending in self._flying), self._lately)
        if fault.kind in ("silent", "closed"):
            peers.discard(fault.node)
        deadline = time.monotonic() + _MOMENT
        try:
            self._told = [self.group.send([message.raw], self.ranks[peer], 0) for peer in sorted(peers)]
            for work in self._told:
                work.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
        except RuntimeError:
            pass  # a peer that is gone, or busy: the connection is closed, and it looks at the board

    def is_mine(self, error: GossamerError) -> bool:
        """Whether it is this node that failed: its numbers are not finite."""
        fault = self.waiting.fault
        return isinstance(error, DivergenceError) and (fault is None or fault.node == self.node)

    def refuse_to_go_on(self, error: GossamerError) -> None:
        """Raise what went wrong, unless the step is to be finished alone and the fault is another node's."""
        if self.waiting.failure is None or not self.waiting.finishes_alone or self.is_mine(error):
            raise error

    def receive(self, pending: "Arriving") -> None:
        """Wait for all messages, in ascending node id, and check that they belong to this round."""
        for peer, work, message in pending.receives:
            self.waiting.message(work, peer, self.name, pending.header.round)
            header = message.read()
            if header and header.fault and (told := Fault.from_word(header.fault, header.stop, header.lr)):
                raise self.waiting.give_up(told, self.name)
            problem = mismatch(pending.header, header)
            if problem:
                fault = self._fault(peer, pending.header, header)
                raise self.waiting.refuse(f"N{self.name(peer)[1:]} {problem}", fault)
            if header and header.stop:
                self.stop = min(header.stop, self.stop or header.stop)
            self._received += 1
            self._received_bytes += message.bytes
        self._flying.remove(pending)
        self.last = pending

    def not_finite(self, peer: int, round: int) -> GossamerError:
        """The error for a peer's numbers that are not finite; the others are told."""
        fault = Fault("sent", peer, round)
        return self.waiting.refuse(str(fault.error(self.name, 0.0)), fault)

    def _fault(self, peer: int, mine: Header, theirs: Header | None) -> Fault:
        """What a message that does not match shows of its sender."""
        in_step = theirs is None or (theirs.round, theirs.serial) == (mine.round, mine.serial)
        ended = theirs is not None and END in (mine.settings, theirs.settings)
        return Fault("settings" if in_step and not ended else "rounds", peer, mine.round, self.node)

    def finish_sends(self, envelope: Envelope) -> None:
        """Wait until the peers have taken what was sent."""
        for peer, work in envelope.sends:
            self.waiting.message(work, peer, self.name, envelope.round, doing="take")
        envelope.sends = []

    def drain(self) -> None:
        """Wait for all messages under way, from this node and to it."""
        for pending in list(self._flying):
            pending.wait()
        for envelopes in self.envelopes.idle.values():
            for envelope in envelopes:
                self.finish_sends(envelope)

    def abandon(self) -> None:
        """Drop the connections with all that is under way, which the peers notice at once."""
        self._flying, self._told, self.last = [], [], None
        self.envelopes = Envelopes()
        self.group = None

    def stats(self) -> dict[str, Any]:
        """Bytes and messages so far, and how many seconds this node waited for each peer."""
        seconds = sorted(self.waiting.seconds.items())
        return {
            "bytes_sent": self._sent_bytes,
            "bytes_received": self._received_bytes,
            "messages_sent": self._sent,
            "messages_received": self._received,
            "wait_seconds": {self._labels[peer] if self._labels else peer: waited for peer, waited in seconds},
        }


def _let_gloo_wait_its_turn() -> None:
    """On Linux: threads of gloo do not take the processor from a thread that trains.

    That thread holds a connection's lock while it sends. If it is interrupted then, gloo's thread asks for the lock
    again and again until it goes on: where processes share processors that took a tenth of all computing.
    """
    for task in Path("/proc/self/task").glob("*"):
        thread = int(task.name)
        with suppress(OSError):  # it has just ended, or a sandbox forbids it
            name = (task / "comm").read_text(encoding="utf-8")
            if name.startswith("gloo") and os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICER)


class Arriving(ABC):
    """Messages under way to this node; the result is made once, when it is first waited for."""

    header: Header
    receives: list[tuple[int, Any, Message]]

    def __init__(self, messenger: Messenger, envelope: Envelope, out: tuple[Tensor, ...], peers: Peers) -> None:
        self.messenger, self.envelope, self.out, self.peers = messenger, envelope, out, peers
        self.arrived = False

    def wait(self) -> tuple[Tensor, ...]:
        """The vectors that arrived."""
        if not self.arrived:
            try:
                self.messenger.receive(self)
                with torch.no_grad():
                    self.unpack()
            except GossamerError as error:
                self.messenger.refuse_to_go_on(error)
                self.abandon()
                return self.out
            if self.messenger.probe is not None:
                with torch.no_grad():
                    self.messenger.probe(self)
            self.arrived = True
            self.messenger.envelopes.give_back(self.envelope, (message for _, _, message in self.receives))
        return self.out

    def abandon(self) -> None:
        """Drop what is under way: the vectors are what they would be if this node had no peers."""
        if not self.arrived:
            self.fill_alone()
        self.receives, self.arrived = [], True

    @abstractmethod
    def unpack(self) -> None:
        """Fill `out` from the messages."""

    @abstractmethod
    def fill_alone(self) -> None:
        """Fill `out` as if this node had no peers."""


class Mixed(Arriving):
    """sum_j W_ij v_j, or x_i + sum_j W_ij (q(x_j) - q(x_i)) where the wire is coarser than the vectors."""

    def unpack(self) -> None:
        """Sum in ascending node id."""
        arrived = {peer: message.vectors for peer, _, message in self.receives}
        own, node = self.envelope.own, self.messenger.node
        if self.envelope.form.exact is None:
            arrived[node] = own
            for k, result in enumerate(self.out):
                (first, weight), *rest = self.peers.weights
                torch.mul(arrived[first][k], weight, out=result)
                for j, weight in rest:
                    result.add_(arrived[j][k], alpha=weight)
            return
        rounded = self.envelope.outgoing[0].vectors
        for k, result in enumerate(self.out):
            mine = rounded[k].to(result.dtype)
            result.copy_(own[k])
            for j, weight in self.peers.weights:
                if j != node:
                    result.add_(arrived[j][k].to(result.dtype).sub_(mine), alpha=weight)

    def fill_alone(self) -> None:
        """The node's own vectors."""
        torch._foreach_copy_(list(self.out), self.envelope.own)


class Decoded(Arriving):
    """sum_j W_ij v_j of compressed vectors, `parcels` being this node's own."""

    def __init__(
        self,
        messenger: Messenger,
        envelope: Envelope,
        out: tuple[Tensor, ...],
        peers: Peers,
        parcels: Sequence[Compressed],
    ) -> None:
        super().__init__(messenger, envelope, out, peers)
        self.parcels = parcels

    def unpack(self) -> None:
        """Sum what the bytes say, in ascending node id."""
        arrived = {peer: message.vectors for peer, _, message in self.receives}
        for k, (result, own) in enumerate(zip(self.out, self.parcels, strict=True)):
            result.zero_()
            for j, weight in self.peers.weights:
                row = own.values
                if j != self.messenger.node:
                    row = own.compressor.decode(arrived[j][k], own.values)
                    if not is_finite(row):  # only here: what is sent next need not show whose number it was
                        raise self.messenger.not_finite(j, self.header.round)
                result.add_(row, alpha=weight)

    def fill_alone(self) -> None:
        """The node's own vectors."""
        torch._foreach_copy_(list(self.out), [own.values for own in self.parcels])


class Swapped(Arriving):
    """Row k holds what the k-th peer sent."""

    def unpack(self) -> None:
        """Copy row by row."""
        for k, (_, _, message) in enumerate(self.receives):
            torch._foreach_copy_([rows[k] for rows in self.out], message.vectors)

    def fill_alone(self) -> None:
        """Nobody has sent anything."""
        torch._foreach_zero_(list(self.out))


class Announced(Arriving):
    """Bare headers: only their arrival matters."""

    def unpack(self) -> None:
        """Nothing to fill."""

    def fill_alone(self) -> None:
        """Nothing to fill."""
