"""Messages between real nodes: how they leave, how they are waited for, checked and counted."""

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.network.header import Header, complaint
from gossamer.network.messages import Envelope, Envelopes, Message
from gossamer.network.plans import Plan
from gossamer.network.waiting import Waiting
from gossamer.topology import Topology


class Messenger:
    """One node's end of all wires. It knows the ranks of its peers once the nodes have met."""

    def __init__(self, topology: Topology, group: dist.ProcessGroup | None, node: int, timeout: float) -> None:
        self.topology = topology
        self.group = group
        self.node = node
        self.waiting = Waiting(timeout)
        self.settings = (0.0, 0)
        """The step size and a hash of all settings, which every message carries for comparison."""
        self.stop: int | None = None
        """The round before which all nodes stop, once somebody has asked for it: word of it goes with every message."""
        self._ranks: list[int] = []
        self._coalesces = group is not None and dist.get_backend(group) == "nccl"
        self._envelopes = Envelopes()
        self._flying: list[Arriving] = []
        self._serial = self._sent_bytes = self._received_bytes = self._sent = self._received = 0

    def name(self, node: int) -> str:
        """A node as sentences call it: its number, its label and, once known, its rank."""
        label = f" ({self.topology.labels[node]})" if self.topology.labels else ""
        rank = f" [rank {self._ranks[node]}]" if self._ranks and self._ranks[node] != node else ""
        return f"node {node}{label}{rank}"

    def _post(self, pending: "Arriving", outgoing: list[Message], round: int) -> "Arriving":
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
        self._sent += len(outgoing)
        self._sent_bytes += sum(m.bytes for m in outgoing)
        self._flying.append(pending)
        return pending

    def _transmit(
        self, plan: Plan, outgoing: list[Message], incoming: list[Message], round: int
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

    def _receive(self, pending: "Arriving") -> None:
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
        """Wait until the peers have taken what was sent."""
        for peer, work in envelope.sends:
            self.waiting.message(work, peer, self.name, envelope.round, doing="take")
        envelope.sends = []


class Arriving(ABC):
    """Messages under way to this node; the result is made once, when it is first waited for."""

    header: Header
    receives: list[tuple[int, Any, Message]]

    def __init__(self, net: Messenger, envelope: Envelope, out: tuple[Tensor, ...], plan: Plan) -> None:
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
