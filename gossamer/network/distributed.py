"""One process per node: vectors travel point to point through torch.distributed."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import BroadcastOptions

from gossamer.compression import Compressed, Identity
from gossamer.errors import GossamerError, InputError, PeerError
from gossamer.network.agreement import check_same, open_board, own_node, tell_all
from gossamer.network.contract import Pending, Ready
from gossamer.network.faults import Fault
from gossamer.network.transfer import Announced, Decoded, Messenger, Mixed, Peers, Swapped
from gossamer.network.waiting import LONGEST, TIMEOUT, Waiting, close_at_exit, unclosed
from gossamer.network.wire import CHANGE, END, Envelope, Form, Message, is_finite
from gossamer.topology import Topology


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
            raise InputError(f"The wire format is None (as computed) or 'bf16' (half the bytes), not {wire!r}.")
        if not 0 < timeout <= LONGEST:
            raise InputError(
                f"The timeout is {timeout!r}, but it must be a number of seconds above 0, at most {LONGEST:g}."
            )
        if group is None and topology.n > 1:
            group = dist.group.WORLD if dist.is_initialized() else None
        size = 1 if group is None else group.size()
        if size != topology.n:
            raise InputError(
                f"The graph '{topology.name}' has {topology.n} nodes, but {size} process{'es' if size > 1 else ''} "
                f"take{'' if size > 1 else 's'} part; start one process per node (or per part of a node, with group=)."
            )
        self.topology, self.group, self.wire = topology, group, wire
        self.n = topology.n
        self.node = own_node(topology, node, 0 if group is None else group.rank())
        self.waiting = Waiting(timeout)
        self.messenger = Messenger(topology, group, self.node, self.waiting)
        self.explain: Callable[[int], Fault] | None = None
        """Tells what is not finite, if it is known, when numbers that are about to be sent are not."""
        self._period, self._mixing_peers = topology.period, dict[int, Peers]()
        self._neighbours = Peers.both_ways(topology.graph.neighbours(self.node))
        self._all_others = Peers.both_ways(j for j in range(self.n) if j != self.node)

    # The verbs of the contract ---------------------------------------------------------------------------------------

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Send to the receivers of the round; sum_j W_ij v_j is made when it is waited for, in ascending node id."""
        plain = [v.values if isinstance(v, Compressed) else v for v in vectors]
        if out is None:
            out = tuple(torch.empty_like(v) for v in plain)
        if not self._is_alone():
            try:
                return self._send_to_mix(vectors, plain, round, out)
            except GossamerError as error:
                self.messenger.refuse_to_go_on(error)
        self._refuse_what_is_not_finite(plain, round)
        torch._foreach_copy_(list(out), plain)
        return Ready(*out)

    def _send_to_mix(
        self, vectors: tuple[Tensor | Compressed, ...], plain: list[Tensor], round: int, out: tuple[Tensor, ...]
    ) -> Pending:
        self._prepare()
        peers, messenger = self._peers(round), self.messenger
        if any(isinstance(v, Compressed) for v in vectors):
            if self.wire is not None:
                raise InputError("Compressed messages are shorter than wire='bf16' could make them; leave out wire=.")
            self._refuse_what_is_not_finite(plain, round)
            parcels = [v if isinstance(v, Compressed) else Identity().compress(v) for v in vectors]
            wires = tuple(parcel.wire() for parcel in parcels)
            envelope = messenger.envelope(wires, outgoing=1)
            envelope.outgoing[0].fill(wires)
            decoded = Decoded(messenger, envelope, out, peers, parcels)
            return messenger.post(decoded, envelope.outgoing * len(peers.receivers), round)
        envelope = messenger.envelope(plain, outgoing=1, wire=torch.bfloat16 if self.wire else None)
        message = envelope.outgoing[0]
        message.fill(tuple(plain))
        if not is_finite(message.body):
            raise self._not_finite(round)
        if envelope.own is not message.vectors:
            torch._foreach_copy_(envelope.own, plain)
        return messenger.post(Mixed(messenger, envelope, out, peers), [message] * len(peers.receivers), round)

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """The exact mean: every rank sums a share of all vectors, in ascending node id, and all collect the shares."""
        if self._is_alone():
            self._refuse_what_is_not_finite([vector], round)
            return vector.clone()
        share = -(-vector.numel() // self.n)
        padded = vector.new_zeros(self.n * share)
        padded[: vector.numel()] = vector.reshape(-1)
        mine, others = padded.view(self.n, share), self._all_others
        sums = list(self._swap(mine[others.receivers], peers=others, round=round).wait()[0])
        sums.insert(self.node, mine[self.node])
        total = sums[0].clone()
        for part in sums[1:]:
            total.add_(part)
        total.div_(self.n)
        shares = list(self._swap(total.expand(self.n - 1, share), peers=others, round=round).wait()[0])
        shares.insert(self.node, total)
        if self._is_alone():  # since it began
            return vector.clone()
        return torch.cat(shares)[: vector.numel()].view_as(vector)

    def spread(self, vector: Tensor) -> Tensor:
        """[d] -> [degree, d], one row per neighbour in ascending node id."""
        return vector.expand(len(self._neighbours.receivers), *vector.shape).clone()

    def collect(self, rows: Tensor) -> Tensor:
        """[degree, d] -> [d], added in ascending node id."""
        return rows.sum(0)

    def exchange(self, *rows: Tensor, round: int) -> Pending:
        """Row k goes to the k-th neighbour and comes back as that neighbour's row for this node."""
        if self.wire is not None:
            raise InputError(
                "wire='bf16' rounds what is sent, and relayed sums would carry the rounding errors for ever, so this "
                "method needs exact messages; leave out wire=."
            )
        if not self._neighbours.receivers:
            return Ready(*(torch.empty_like(r) for r in rows))
        return self._swap(*rows, peers=self._neighbours, round=round)

    # What only real nodes need ---------------------------------------------------------------------------------------

    def join(self, facts: dict[str, Any] | None = None, own: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Meet all nodes: an error if they differ in the graph or in `facts`; else what each says of its `own`.

        The answers are in the order of node ids. All nodes must call it equally often.
        """
        graph = f"{self.topology!r} {self.topology.fingerprint[:12]}"
        same = {"graph": graph, "wire format": self.wire or "exact", **(facts or {})}
        if self.group is None:
            return [own or {}]
        mine = {"node": self.node, "same": same, "own": own or {}}
        told = tell_all(self.group, mine, self.waiting, "the meeting of all nodes", self.messenger.name)
        check_same([t["same"] for t in told], self.group.rank())
        nodes = [t["node"] for t in told]
        if len(set(nodes)) < self.n:
            twice = next(i for i in nodes if nodes.count(i) > 1)
            ranks = " and ".join(str(rank) for rank, i in enumerate(nodes) if i == twice)
            raise PeerError(
                f"The ranks {ranks} all say that they are {self.messenger.name(twice)}; give every process its own "
                f"node=."
            )
        self.messenger.ranks = [nodes.index(i) for i in range(self.n)]
        if self.waiting.board is None and not self.waiting.rebuilds:
            self.waiting.board = open_board(self.group, self.node)
        return [told[rank]["own"] for rank in self.messenger.ranks]

    def announce_change(self, round: int, room: int, to_all: bool = False) -> None:
        """Before nodes that are under way `join` again: make sure that the neighbours are about to do so, too.

        Bare headers are exchanged instead of the next ordinary message, that of `round`, which holds at most `room`
        bytes. Where one side sends the one and the other side the other, both raise an error instead of waiting.
        """
        self._headers(round, room, self._all_others if to_all else self._peers(round), CHANGE)

    def _headers(self, round: int, room: int, peers: Peers, mark: int) -> None:
        """Exchange bare headers with a mark instead of the settings."""
        messenger = self.messenger
        if self.n == 1 or messenger.coalesces:  # NCCL takes no message of unforeseen length
            return
        here = torch.device("cpu")
        envelope = Envelope(
            Form((torch.Size([room]),), torch.uint8, here, outgoing=1),
            [Message((torch.Size([0]),), torch.uint8, here)],
            own=[],
        )
        usual, messenger.settings = messenger.settings, (messenger.settings[0], mark)
        try:
            pending = Announced(messenger, envelope, (), peers)
            messenger.post(pending, envelope.outgoing * len(peers.receivers), round).wait()
        finally:
            messenger.settings = usual
        messenger.finish_sends(envelope)
        messenger.envelopes.forget(envelope.form)

    def broadcast(self, vector: Tensor, node: int = 0) -> None:
        """Overwrite `vector` with that of `node`."""
        if self.n > 1:
            self._prepare()
            with self.waiting.everyone("the start from equal parameters", self.messenger.name):
                options = BroadcastOptions()
                options.rootRank, options.timeout = self.messenger.ranks[node], self.waiting.timeout
                self.group.broadcast([vector], options).wait(self.waiting.timeout)  # type: ignore[union-attr]

    def drain(self) -> None:
        """Wait for all messages under way, from this node and to it."""
        self.messenger.drain()

    def stop(self, fault: Fault) -> GossamerError:
        """The error with which this node ends because of a fault of its own. All others are told."""
        self.waiting.tell(fault)
        self.waiting.fault = None
        self.waiting.failure = fault.error(self.messenger.name, self.waiting.timeout.total_seconds())
        return self.waiting.failure

    def close(self) -> None:
        """Let the last messages arrive, and part from the other nodes: all must have made the same steps.

        All nodes must call it; it is called at exit. Neighbours exchange bare headers as often as word needs to get
        from any node to all others, so that all of them learn if one has made a step more or less.
        """
        unclosed.pop(self, None)
        if self.waiting.failure is None and self.messenger.ranks:
            self.drain()
            for _ in range(self.topology.diameter):
                self._headers(self.messenger.round, self.messenger.room, self._neighbours, END)

    def abandon(self) -> None:
        """Part from the other nodes at once: what is under way is lost, and they notice."""
        unclosed.pop(self, None)
        if self.waiting.failure is not None:  # its traceback refers to what was waited for
            self.waiting.failure.__traceback__ = self.waiting.failure.__context__ = None
        self.messenger.abandon()
        self.group = None

    @property
    def failed(self) -> bool:
        """Whether a peer has failed, so that nothing can be sent or received any more."""
        return self.waiting.failure is not None

    def part(self) -> None:
        """After a fault that all nodes know of: wait until all have come here, on the board. All must call it."""
        if self.group is not None:
            tell_all(self.group, {}, Waiting(self.waiting.timeout.total_seconds()), "the end")

    def stats(self) -> dict[str, Any]:
        """Bytes and messages so far, and how many seconds this node waited for each peer."""
        return self.messenger.stats()

    # Inside ----------------------------------------------------------------------------------------------------------

    def _is_alone(self) -> bool:
        """Whether there is nobody to send to, or nobody any more in this step."""
        return self.n == 1 or (self.failed and self.waiting.finishes_alone)

    def _prepare(self) -> None:
        """Before anything is sent: the nodes have met, and none has failed."""
        self.waiting.check()
        if not self.messenger.ranks:
            self.join()
        if not self.waiting.rebuilds:  # else who is left is closed by whoever knows who that is
            close_at_exit(self)

    def _refuse_what_is_not_finite(self, vectors: Sequence[Tensor], round: int) -> None:
        """Where nothing is sent, which would be looked at."""
        if not all(is_finite(v) for v in vectors):
            raise self._not_finite(round)

    def _not_finite(self, round: int) -> GossamerError:
        """The error for numbers that must not be sent: who they come from, as far as it is known."""
        last = self.messenger.last
        for sender, _, message in last.receives if last else ():
            if message.body.is_floating_point() and not is_finite(message.body):
                return self.stop(Fault("sent", sender, last.header.round if last else round))
        return self.stop(self.explain(round) if self.explain else Fault("model", self.node, round))

    def _peers(self, round: int) -> Peers:
        """The peers of a round of mixing, found once."""
        index = round % self._period
        if index not in self._mixing_peers:
            self._mixing_peers[index] = Peers.mixing(self.topology, self.node, index)
        return self._mixing_peers[index]

    def _swap(self, *rows: Tensor, peers: Peers, round: int) -> Pending:
        """Row k goes to the k-th peer and comes back as that peer's row for this node."""
        out = tuple(torch.zeros_like(r, memory_format=torch.contiguous_format) for r in rows)
        if not self._is_alone():
            try:
                return self._send_to_swap(rows, out, peers, round)
            except GossamerError as error:
                self.messenger.refuse_to_go_on(error)
        self._refuse_what_is_not_finite(rows, round)
        return Ready(*out)

    def _send_to_swap(self, rows: tuple[Tensor, ...], out: tuple[Tensor, ...], peers: Peers, round: int) -> Pending:
        self._prepare()
        envelope = self.messenger.envelope([r[0] for r in rows], outgoing=len(peers.receivers))
        for k, message in enumerate(envelope.outgoing):
            torch._foreach_copy_(message.vectors, [r[k] for r in rows])
            if not is_finite(message.body):
                raise self._not_finite(round)
        return self.messenger.post(Swapped(self.messenger, envelope, out, peers), envelope.outgoing, round)
