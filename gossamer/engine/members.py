"""A simulation whose nodes come and go: between two changes it is an ordinary one of the nodes that are there."""

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer._common.formatting import Row
from gossamer.engine.simulation import Simulation
from gossamer.errors import InputError
from gossamer.methods import Method, State
from gossamer.network import SimulatedNetwork
from gossamer.network.contract import Network
from gossamer.topology import Topology, regraph

log = logging.getLogger("gossamer")

Rows = dict[str, Tensor]
"""Vectors by name, one row [d] for each node: x, and what the method keeps."""


@dataclass(frozen=True)
class Gone:
    """A node that is away: since which round, and what it took along."""

    since: int
    own: Rows


class Members:
    """Who is there, who is away, and the graph of those that are there."""

    def __init__(self, timeline: Sequence[tuple[int, tuple[int, ...]]], stale: int, method: Method, graph: Topology):
        # Models that are only kept equal, not mixed, must be equal: whoever returns takes the others'.
        self._timeline, self._stale = list(timeline), 0 if method.facts.sends == "all-reduce" else stale
        self._method, self._whole, self._graphs = method, graph, {tuple(range(graph.n)): graph}
        self._gone: dict[int, Gone] = {}
        self._told = [0, 0]
        self.present: tuple[int, ...] = self._timeline[0][1]
        self.next = self._after(0)
        """The round before which the members change next; -1 if they stay as they are."""

    @property
    def graph(self) -> Topology:
        """The graph of the nodes that are there."""
        if self.present not in self._graphs:
            graph = regraph(self._whole, self.present, self._method.facts.needs)
            self._method.check(graph)
            self._graphs[self.present] = graph
        return self._graphs[self.present]

    def change(self, rows: Rows, round: int) -> tuple[Rows, list[int]]:
        """The rows of the nodes that are there from `round` on, and the nodes that the others take the mean of.

        Those that stay keep their rows; so does one that returns after fewer than `stale` rounds. All others take the
        mean over these.
        """
        before, self.present = self.present, dict(self._timeline)[round]
        self.next = self._after(round)
        own = {node: {name: part[k] for name, part in rows.items()} for k, node in enumerate(before)}
        for node in set(before).difference(self.present):
            self._gone[node] = Gone(round, {name: part.clone() for name, part in own[node].items()})
        for node in set(self.present).difference(before):
            gone = self._gone.pop(node, None)
            if gone is not None and round - gone.since < self._stale and gone.own.keys() == rows.keys():
                own[node] = {name: part.to(rows[name].device) for name, part in gone.own.items()}
        holders = [node for node in self.present if node in own] or list(before)
        means = {name: torch.stack([own[node][name] for node in holders]).mean(0) for name in rows}
        taken = {
            name: torch.stack([own[node][name] if node in own else means[name] for node in self.present])
            for name in rows
        }
        self._say(before, round, [node for node in self.present if node not in own])
        return taken, holders

    def told(self, round: int) -> dict[str, Any]:
        """What a row of figures says after `round` rounds: who is there, and the changes since the last row."""
        if round != self._told[1]:  # else the same round is measured again
            self._told = [self._told[1], round]
        changes = []
        for (_, before), (at, after) in zip(self._timeline, self._timeline[1:], strict=False):
            if self._told[0] <= at < round:
                changes += [[at, word, sorted(those)] for word, those in _differences(before, after)]
        return {"present": list(self.present), "changes": changes}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the rest follows from the round."""
        gone = {str(node): {"since": gone.since, **gone.own} for node, gone in self._gone.items()}
        return {"gone": gone, "told": self._told}

    def load_state_dict(self, round: int, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave after `round` rounds, before the change that may be due."""
        self.present = [there for at, there in self._timeline if at < max(round, 1)][-1]
        self.next = min((at for at, _ in self._timeline if at >= max(round, 1)), default=-1)
        self._told = [int(round) for round in saved["told"]]
        self._gone = {}
        for node, rows in saved["gone"].items():
            own = dict(rows)
            self._gone[int(node)] = Gone(int(own.pop("since")), own)

    def _after(self, round: int) -> int:
        return min((at for at, _ in self._timeline if at > round), default=-1)

    def _say(self, before: Sequence[int], round: int, averaged: list[int]) -> None:
        happened = [
            f"{_named(those)} {word if len(those) == 1 else word[:-1]}"
            for word, those in _differences(before, self.present)
        ]
        takes = f"; {_named(averaged)} start{'s' if len(averaged) == 1 else ''} from the average" if averaged else ""
        graph = self.graph.name
        log.info(
            "Before round %d %s%s; %d of %d nodes go on, graph %s.",
            round, " and ".join(happened), takes, len(self.present), self._whole.n, graph,
        )  # fmt: skip


def kept_rows(state: Any, x: Tensor) -> Rows | None:
    """x and what the state of a method `keeps`, by name; None if it does not say so, and the method starts again."""
    keeps = state.keeps if isinstance(state, State) else None
    if isinstance(state, State) and not dataclasses.fields(state):
        keeps = ()
    return None if keeps is None else {"x": x, **{name: getattr(state, name) for name in keeps}}


def take_over(state: Any, rows: Rows, x: Tensor, net: Network, round: int) -> None:
    """Let a fresh state go on among the nodes that are there: `rows` is what it keeps, `State.rejoin` does the rest."""
    for name, part in rows.items():
        if name != "x":
            getattr(state, name).copy_(part)
    state.rejoin(x, net, round)


def go_on(members: Members, method: Method, x: Tensor, state: Any, round: int) -> tuple[Tensor, Any, SimulatedNetwork]:
    """The points, the method's state and the network after the change before `round`.

    A method that does not say what it keeps starts again from the average.
    """
    kept = kept_rows(state, x)
    taken, _ = members.change({"x": x} if kept is None else kept, round)
    net, x = SimulatedNetwork(members.graph, x.dtype, x.device), taken["x"]
    if kept is None:
        x.copy_(x.mean(0))
    state = method.initial(x, net)
    if kept is not None:
        take_over(state, taken, x, net, round)
    return x, state, net


class ChangingSimulation(Simulation):
    """A `Simulation` whose settings say which nodes leave and return in its `rounds`.

    The data, batches and random numbers of every node are its own, whether it is there or not. Models, gradients, the
    method's state and the network are those of the nodes that are there; a change makes them for others.
    """

    def __init__(self, *args: Any, rounds: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings, churn = self.settings, self.settings.churn
        if churn is None:
            raise InputError("The settings of this simulation do not say who comes and goes.")
        if settings.inner is not None and not isinstance(settings.inner, str):
            raise InputError("Where nodes come and go, inner is a name such as 'adamw', not a function.")
        timeline = churn.present(self.data.nodes, rounds, self.batches.rounds_per_epoch, settings.seed, settings.every)
        self.members = Members(timeline, churn.stale, self.method, self.topology)
        self._everyone, self._whole = self.models, self.gradients
        self._sent_before = 0.0
        """What was sent before the last change, less what it would have been among the nodes that are there now."""
        self._arrange(self.models.x.detach()[list(self.members.present)].clone())

    def advance(self) -> None:
        """One round, after the change that is due before it."""
        if self.round == self.members.next:
            with torch.no_grad():
                self._change()
        super().advance()

    def measure(self, samples: tuple[Tensor, Tensor] | None = None, validate: bool = False) -> Row:
        """See `Simulation.measure`; the row also says who is there and what has changed since the last one."""
        return {**super().measure(samples, validate), **self.members.told(self.round)}

    def state_dict(self) -> dict[str, Any]:
        """What decides the rounds to come, of the nodes that are away too."""
        own = {**self.members.state_dict(), "sent": self._sent_before}
        return {**super().state_dict(), "buffers": self._everyone.buffers(), "members": own}

    def load_state_dict(self, round: int, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave after `round` rounds."""
        self.members.load_state_dict(round, saved["members"])
        self._sent_before = float(saved["members"]["sent"])
        self._arrange(saved["x"].to(self.models.x.device, copy=True))
        super().load_state_dict(round, {**saved, "buffers": {}})
        self._everyone.load_buffers(saved["buffers"])

    def _change(self) -> None:
        """Before this round nodes leave or join, and the others go on with them."""
        x, exchanges = self.models.x.detach(), self.round // self.settings.every
        self._sent_before += self._bytes_of_this_graph()
        kept = kept_rows(self.state, x)
        rows = {"x": x} if kept is None else kept
        inner = self._local.rows() if self._local is not None else {}
        taken, holders = self.members.change({**rows, **{f"inner {k}": v for k, v in inner.items()}}, self.round)
        if kept is None:
            taken["x"].copy_(taken["x"].mean(0))
        self._take_buffers(holders)
        self._arrange(taken["x"], {name: taken[f"inner {name}"] for name in inner})
        if kept is not None:
            take_over(self.state, {name: taken[name] for name in kept}, self.models.x, self.network, exchanges)
        self._sent_before -= self._bytes_of_this_graph()

    def _arrange(self, x: Tensor, inner: Rows | None = None) -> None:
        """Models, network, gradients and a fresh state for the nodes that are there, whose models are `x`.

        `inner` is what their optimizer of local steps remembers.
        """
        settings, self.present = self.settings, self.members.present
        self.topology = self.members.graph
        self.models = self._everyone.among(self.present, x)
        self.network = SimulatedNetwork(self.topology, x.dtype, settings.device)
        self.state = self.method.initial(self.models.x, self.network)
        weights = self.data.loss_weights(settings.node_weight)[list(self.present)]
        self.gradients = self._whole.among(self.models, self.present, weights / weights.mean())
        if self._local is not None:
            self._local = self._local.among(self.models, str(settings.inner), inner or {})
        self._meter.regroup(len(self.present))
        self._norms_are_known = False

    def _take_buffers(self, holders: Sequence[int]) -> None:
        """Nodes without a model of their own start from the mean of the others' buffers (BatchNorm's statistics)."""
        modules = self._everyone.modules
        for name, first in modules[holders[0]].named_buffers():
            those = [dict(modules[node].named_buffers())[name] for node in holders]
            value = torch.stack(those).mean(0) if first.is_floating_point() else first
            for node in self.members.present:
                if node not in holders:
                    dict(modules[node].named_buffers())[name].copy_(value)

    def _bytes_sent(self) -> float:
        return self._sent_before + self._bytes_of_this_graph()

    def _bytes_of_this_graph(self) -> float:
        """What a node would have sent if the members had always been these."""
        return super()._bytes_sent()


def _differences(before: Sequence[int], after: Sequence[int]) -> list[tuple[str, list[int]]]:
    """("leaves", nodes) and ("joins", nodes), each if there are any."""
    both = ("leaves", sorted(set(before) - set(after))), ("joins", sorted(set(after) - set(before)))
    return [(word, those) for word, those in both if those]


def _named(nodes: Sequence[int]) -> str:
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))}"
