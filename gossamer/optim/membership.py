"""What an optimizer does when sites leave or join: drop the connections, meet the others, go on among them.

A round is always made as a whole. A site that loses another one in the middle finishes its round alone, as if it had no
neighbours, and then meets those that are left. So a step may change its state in place: there is no going back. The
round that all go on from is the largest that one of them has reached: a site that was behind keeps its model and makes
fewer rounds.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gossamer import topology as graphs
from gossamer._common import checkpoint_file as files
from gossamer.errors import GossamerError, InputError, PeerError
from gossamer.network import DistributedNetwork
from gossamer.network.agreement import tell_all
from gossamer.network.sites import Change, Gathering, Sites, names_in_words
from gossamer.network.waiting import TIMEOUT, close_at_exit, unclosed
from gossamer.optim.bucket import Bucket, average_buffers
from gossamer.optim.meeting import Meeting, odd_ones_out
from gossamer.optim.param_groups import Rule
from gossamer.optim.restart import rounds_to_reach_all
from gossamer.topology import Topology
from gossamer.topology.families import is_file

log = logging.getLogger("gossamer")

_TRIES = 20
"""Meetings in a row without a round after which something is wrong that meeting again does not cure."""

_MOST_ROUNDS = 10**9
"""The names of checkpoints have nine digits for them."""


class Membership:
    """The part of an optimizer that knows who is there. `optimizer` is a `DecentralizedOptimizer`."""

    def __init__(self, optimizer: Any, sites: Sites, topology: str | Topology | None) -> None:
        facts = optimizer.method.facts
        if topology is None and facts.sends != "all-reduce":
            raise InputError("No graph says which sites talk to each other; give topology='ring' or another.")
        given = "complete" if topology is None else topology
        if isinstance(given, str) and is_file(given):
            given = graphs.get(given)
        graphs.resolve(given, 1, one_node_needs_none=True)  # refuses a name that does not exist
        self.sites = sites
        self.names: tuple[str, ...] = ()
        """The sites that are there, in the order of node numbers."""
        self.changes = 0
        self.saved: dict[str, Any] | None = None
        """A state out of a checkpoint, from which this site begins."""
        self.saved_in: Path | None = None
        """The file of that checkpoint."""
        self.model: nn.Module | None = None
        """The model whose buffers a site that joins takes from the others."""
        self.checkpointed: tuple[str, ...] | None = None
        """The sites of the newest checkpoint, where `Checkpoints` finds out how sites begin that all start now."""
        self.carried: dict[str, Any] = {}
        """Schedulers and the like, whose position a site that was away takes from the others."""
        self.began_together = False
        """Whether all sites of the last meeting had just been started, so that they begin with it."""
        self._optimizer, self._given, self._needs = optimizer, given, facts.needs
        self._together = self._started = self._lost_state = self._called = self._planned = False
        self._reasons: dict[str, str] = {}
        self._notice = self._tries = 0
        self._past: Counter[str] = Counter()
        self._waited: dict[str, float] = {}

    @property
    def alone(self) -> Topology:
        """The graph before the first meeting."""
        return Topology("alone", graphs.complete(1).mixings, [self.sites.name])

    @staticmethod
    def refuse(group: object, node: object, timeout: float) -> None:
        """Raise if an option was given that has no meaning for sites that come and go."""
        _refuse_groups(group)
        if node is not None:
            raise InputError("A site is known by its name: give it to Sites and leave out node=.")
        if timeout != TIMEOUT:
            raise InputError("How long a silent site is waited for is patience= of Sites; leave out timeout=.")

    # Around a step ---------------------------------------------------------------------------------------------------

    def make(self, step: Callable[[], None]) -> None:
        """A step of the optimizer. What fails before the exchange has changed nothing."""
        while True:
            self.attend()
            try:
                return step()
            except GossamerError:
                if not self._together or not self._optimizer.network.failed:
                    raise

    def attend(self) -> None:
        """Before a step: meet the others if this site is not with them, or if word came that all meet now."""
        self.sites.progress()
        net, now = self._optimizer.network, self._optimizer.round
        if self._together and not net.failed:
            messenger = net.messenger
            if messenger.stop is None and self.sites.newcomers:
                messenger.stop = now + self._notice
                self._called = True
            if messenger.stop is None or now < messenger.stop:
                return
            with suppress(GossamerError):
                net.drain()  # a neighbour may still need what is under way
                self._planned = True
        self.regroup()

    def may_leave(self) -> bool:
        """Let all others meet without this site; whether the round has come before which they do."""
        messenger, round = self._optimizer.network.messenger, self._optimizer.round
        if messenger.stop is None:
            messenger.stop = round + self._notice
        return not self._together or round >= messenger.stop

    def exchange(self, now: int, rules: list[Rule], load: Callable[[Bucket, Rule, bool], None], overflow: bool) -> None:
        """The optimizer's update, with the others or, where one of them is lost, finished alone."""
        net = self._optimizer.network
        try:
            with self.finishing_alone():
                self._optimizer._update(now, rules, load, overflow)
        except GossamerError:
            if net.failed:  # this site's own numbers are not finite, and neither is what it remembers
                self._lost_state = True
                self.leave()
            raise
        self.sites.progress()
        if net.failed:
            self._part()
        else:
            self._tries = 0

    @contextmanager
    def finishing_alone(self) -> Iterator[None]:
        """Inside the `with` a lost site is no error: this one goes on alone, and the next step meets the others."""
        waiting = self._optimizer.network.waiting
        waiting.finishes_alone = True
        try:
            yield
        finally:
            waiting.finishes_alone = False

    def together(self, work: Callable[[], None]) -> None:
        """What all sites do at once between two steps, with whoever is there when it succeeds."""
        while True:
            if not self._together or self._optimizer.network.failed:
                self.regroup()
            self.sites.progress()
            try:
                return work()
            except GossamerError:
                if not self._optimizer.network.failed:
                    raise

    # Leaving and meeting ---------------------------------------------------------------------------------------------

    def leave(self, drain: bool = False) -> None:
        """Part from the others; the next step comes back to them. With `drain` they get what is under way."""
        if drain:
            with suppress(GossamerError):
                self._optimizer.network.drain()
        self._part()
        self.sites.leave()

    failed = False
    """As a run that ends: what fails at the end fails only others."""

    def close(self) -> None:
        """After the last step: leave when all others have made theirs too."""
        unclosed.pop(self, None)
        if self._together:
            with suppress(GossamerError):  # they may have failed, but this site is done
                self._optimizer.network.close()
        self.leave()

    @torch.no_grad()
    def regroup(self) -> None:
        """Meet whoever is there, and go on among them."""
        _refuse_groups(None)
        if any(bucket.x.device.type != "cpu" for bucket in self._optimizer._buckets):
            raise InputError("Sites that come and go send through gloo, from the processor; keep the model on the CPU.")
        self._part()
        while True:
            self._tries += 1
            gathering = self.sites.meet(self._told())
            try:
                self._join(gathering)
                break
            except InputError:
                self.leave()
                raise
            except GossamerError:
                if self._tries >= _TRIES:
                    self.leave()
                    raise
                self._part()
            finally:
                del gathering  # the group lives as long as somebody refers to it
        self._together = True
        close_at_exit(self)

    def _part(self) -> None:
        """Drop all connections. The others notice at once."""
        optimizer = self._optimizer
        self._together = False
        self._note()
        for bucket in optimizer._buckets:
            bucket.abandon()
        if optimizer.network.group is not None:
            counted = optimizer.network.stats()
            self._past.update({k: v for k, v in counted.items() if isinstance(v, int)})
            self._waited = self._wait_seconds()
            optimizer.network.abandon()

    def _told(self) -> dict[str, Any]:
        """What this site says of itself when it meets the others."""
        round = self._optimizer.round
        if self.saved is not None:
            with self._taking_over():
                round = int(self.saved["param_groups"][0]["round"])
                if not 0 <= round < _MOST_ROUNDS:
                    raise ValueError(f"it is of round {round}")
        return {
            "round": round,
            "holds": round > 0 and not self._lost_state,
            "live": self._started,
            "expects": self.checkpointed or (),
            "reasons": self._reasons,
            "called": self._called or not self._planned,
        }

    def _taking_over(self) -> AbstractContextManager[None]:
        """Around the code that takes over `saved`, which may be forged."""
        return nullcontext() if self.saved is None else files.taking_over(str(self.saved_in))

    def _note(self) -> None:
        """Remember who failed, and why, to tell the others."""
        net = self._optimizer.network
        fault, labels = net.waiting.fault, net.topology.labels
        if fault is None or not labels or not 0 <= fault.node < len(labels):
            return
        error = net.waiting.failure
        reason = {
            "closed": "it closed the connection: it crashed or was stopped",
            "silent": f"it was silent for {self.sites.patience:g} s",
            **dict.fromkeys(("loss", "gradient", "model"), f"its {fault.kind} is not finite"),
        }.get(fault.kind, str(error).rstrip("."))
        self._reasons.setdefault(labels[fault.node], reason)

    # Going on among others -------------------------------------------------------------------------------------------

    def _join(self, gathering: Gathering) -> None:
        """Make the network of those who have met, and continue on it."""
        optimizer, told = self._optimizer, gathering.told
        graph = self._graph(gathering.names)
        names = tuple(graph.labels or ())
        told = tuple(told[gathering.names.index(name)] for name in names)
        node, wire = names.index(self.sites.name), optimizer.network.wire
        net = DistributedNetwork(graph, gathering.group, node=node, wire=wire, timeout=self.sites.patience)
        net.waiting.rebuilds = True
        optimizer.network = net
        optimizer._meeting = Meeting(net, optimizer.method.facts, *optimizer._held_alike)
        every = optimizer._method_of(optimizer.param_groups[0]).facts.every
        self._notice = (rounds_to_reach_all(graph) + 1) * every if graph.n > 1 else 0
        holding = [int(t["round"]) for t in told if t["holds"]]
        newest = max(holding, default=0)
        holders = [i for i, t in enumerate(told) if t["holds"] and newest - int(t["round"]) < self.sites.stale]
        self.began_together = not any(t["live"] for t in told)
        with self._unchanged_if_lost():
            if self.began_together and self.checkpointed is not None:
                optimizer._arrange({})
            elif not holders:
                optimizer._arrange({})
                self._compare(0, [])
                optimizer._hold(0)
            else:
                leader = next(i for i in holders if int(told[i]["round"]) == newest)
                behind = [i for i, t in enumerate(told) if i not in holders or int(t["round"]) < newest]
                self._compare(leader, behind)
                with self._taking_over():
                    state = self._state(net, leader, behind, net.node in holders)
                    optimizer.continue_among(state, holders)
                if self.model is not None and len(holders) < net.n:
                    average_buffers(self.model, net, holders, newest)
                if net.node not in holders:
                    optimizer._outdated = True
                optimizer._hold(newest)
        if not self.began_together or self.checkpointed is None:
            self.begin()
        self._tell_change(names, newest, told)

    @contextmanager
    def _unchanged_if_lost(self) -> Iterator[None]:
        """Around what may lose another site in its middle: this one then comes to the next meeting as to this one."""
        optimizer = self._optimizer
        own = [(p, p.clone()) for bucket in optimizer._buckets for p in bucket.parameters]
        try:
            with optimizer._unchanged_if_refused():
                yield
        except GossamerError:
            for parameter, value in own:
                parameter.copy_(value)
            raise

    def begin(self) -> None:
        """From now on this site is one that others join."""
        self.saved, self._lost_state, self._started = None, False, True

    def _graph(self, names: Sequence[str]) -> Topology:
        """The graph of the sites that are there, which are its labels."""
        given, order = self._given, sorted(names)
        present: Sequence[int] = range(len(order))
        if isinstance(given, Topology) and given.of_size is None:
            known = list(given.labels or map(str, range(given.n)))
            known += [name for name in order if name not in known]
            present = sorted(known.index(name) for name in order)
            order = [known[i] for i in present]
        graph = graphs.regraph(given, present, self._needs)
        try:
            self._needs.check("", graph)
        except InputError as error:
            if not self._needs.tree:
                raise
            log.warning("%s The sites form a chain instead.", str(error).strip())
            graph = graphs.chain(len(order))
        return Topology(graph.name, graph.mixings, order)

    def _state(self, net: DistributedNetwork, leader: int, behind: list[int], holds: bool) -> dict[str, Any]:
        """The state to go on from; sites that are behind take settings, positions and the round from the leader."""
        optimizer = self._optimizer
        own: dict[str, Any] = self.saved or optimizer.state_dict()
        if not behind:
            return own
        handed = files.unpack(self._sent_by(net, leader, own))
        if net.node not in behind:
            return own
        groups, given = own["param_groups"], handed["param_groups"]
        if [len(group["params"]) for group in groups] != [len(group["params"]) for group in given]:
            raise InputError(
                "The other sites train other parameters than this one; start every site with the same script."
            )
        taken = {**own, "param_groups": [{**t, "params": g["params"]} for t, g in zip(given, groups, strict=True)]}
        numbers = zip(
            (n for group in groups for n in group["params"]), (n for g in given for n in g["params"]), strict=True
        )
        taken["state"] = {
            n: {**own["state"][n], "born": handed["born"].get(m, 0)} for n, m in numbers if n in own["state"]
        }
        if "inner" in own:  # settings of the inner optimizer and, for a new site, its state
            mine, inner = own["inner"], handed["inner"]
            both = zip(inner["param_groups"], mine["param_groups"], strict=True)
            settings = [{**theirs, "params": group["params"]} for theirs, group in both]
            taken["inner"] = {**mine, "param_groups": settings} if holds else inner
        for key, value in self.carried.items():
            if key in handed["carried"]:
                value.load_state_dict(handed["carried"][key])
        return taken

    def _sent_by(self, net: DistributedNetwork, leader: int, own: dict[str, Any]) -> bytes:
        """What the leader hands over, on all sites."""
        data = b""
        if net.node == leader:
            handed = {
                "param_groups": own["param_groups"],
                "born": {n: entry["born"] for n, entry in own["state"].items()},
                "carried": {key: value.state_dict() for key, value in self.carried.items()},
                "inner": own.get("inner"),
            }
            data = files.pack(handed)
        size = net.join(own={"size": len(data)})[leader]["size"]
        buffer = torch.empty(int(size), dtype=torch.uint8)
        if net.node == leader:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        net.broadcast(buffer, leader)
        return buffer.numpy().tobytes()

    def _compare(self, leader: int, behind: Sequence[int]) -> None:
        """Let a site that was started otherwise than the others leave, with an error that says in what.

        Those that are behind are about to take over the step size and the hyper-parameters.
        """
        optimizer, net = self._optimizer, self._optimizer.network
        if net.group is None:
            return
        weight = "given" if optimizer._held_alike[0] is not None else "none"
        facts = {
            "method": optimizer.method.facts.title, "graph": net.topology.fingerprint[:12], "node_weight": weight,
            "wire format": net.wire or "exact", "equal_gradients": optimizer._held_alike[1], **optimizer._facts(),
        }  # fmt: skip
        answers = tell_all(net.group, {"node": net.node, "facts": facts}, net.waiting, "the meeting of the sites")
        by_node = {int(a["node"]): a["facts"] for a in answers}
        wanted, labels = by_node[leader], net.topology.labels or ()
        differing = {labels[i]: key for i, key in odd_ones_out(by_node, leader, behind).items()}
        mine = differing.get(self.sites.name)
        if mine is not None:
            raise InputError(
                f"This site differs from the others in the {mine} (here: {facts.get(mine, 'missing')}; there: "
                f"{wanted.get(mine, 'missing')}), so it cannot join them; start every site with the same script and "
                f"settings."
            )
        for name, key in differing.items():
            self._reasons[name] = f"it differs from the others in the {key}"
        if differing:
            raise PeerError(f"{names_in_words(list(differing))} cannot join: other settings than the other sites.")

    def _tell_change(self, names: tuple[str, ...], round: int, told: Sequence[dict[str, Any]]) -> None:
        """One sentence in the log, and the user's function."""
        before, self.names = self.names, names
        known = {name: why for t in reversed(told) for name, why in t["reasons"].items()}
        # A meeting that none of those who came has called was called by the one who left.
        why = "it did not come to the meeting" if any(t["called"] for t in told) else "it said that it would"
        left = {name: known.get(name, why) for name in before if name not in names}
        self._called = self._planned = False
        joined = tuple(name for name in names if name not in before)
        self._reasons = {}
        if not before:
            others = names_in_words([name for name in names if name != self.sites.name]) or "no other site"
            log.warning("%s trains with %s from round %d on.", self.sites.name, others, round)
            joined = ()
        for name, why in left.items():
            log.warning("%s left before round %d: %s; %s are left.", name, round, why, names_in_words(names))
        if joined:
            log.warning("%s joined before round %d; now %s.", names_in_words(joined), round, names_in_words(names))
        if left or joined:
            self.changes += 1
            if self.sites.on_change is not None:
                self.sites.on_change(Change(round, names, left, joined))

    def stats(self) -> dict[str, Any]:
        """Who is there, how often that has changed, and all that was counted on earlier connections too."""
        now = self._optimizer.network
        total = {key: value + (now.stats()[key] if now.group else 0) for key, value in self._past.items()}
        return {**total, "wait_seconds": self._wait_seconds(), "sites": list(self.names), "changes": self.changes}

    def _wait_seconds(self) -> dict[str, float]:
        """How long this site has waited for each of the others, on earlier connections too."""
        now = self._optimizer.network
        here = now.stats()["wait_seconds"] if now.group else {}
        return {name: self._waited.get(name, 0.0) + here.get(name, 0.0) for name in sorted({*self._waited, *here})}


def _refuse_groups(group: object) -> None:
    if group is not None or torch.distributed.is_initialized():
        raise InputError(
            "Sites that come and go make their own connections, and a site is one process (no DDP or FSDP inside it): "
            "leave out group= and init_process_group, and start the script without torchrun."
        )
