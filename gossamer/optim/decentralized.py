"""What all optimizers share: a method of the simulator behind the interface of torch.optim.Optimizer."""

import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar, Literal
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from gossamer import topology as graphs
from gossamer.errors import GossamerError, InputError
from gossamer.methods import Method
from gossamer.network import DistributedNetwork
from gossamer.network.faults import Fault, value_of
from gossamer.network.sites import Sites
from gossamer.network.waiting import TIMEOUT
from gossamer.network.wire import is_finite
from gossamer.optim.bucket import Bucket, buckets_for
from gossamer.optim.meeting import Meeting, refuse_wrapper
from gossamer.optim.metrics_server import VARIABLE, Watched
from gossamer.optim.param_groups import (
    COMMON,
    Rule,
    Rules,
    check_group,
    group_facts,
    refuse_foreign_groups,
    state_by_parameter,
)
from gossamer.optim.process_group import averaging_across, find_group
from gossamer.topology import Topology

_live: WeakSet["DecentralizedOptimizer"] = WeakSet()
_numbers = itertools.count()


class DecentralizedOptimizer(Watched, torch.optim.Optimizer):
    """One node of a decentralized method, as an optimizer.

    Every process calls `step()` equally often. In the first step the nodes make sure that they were started alike, that
    nothing else averages their gradients and, in round 0, that they hold equal parameters (those of node 0 win).
    Parameters that require a gradient are exchanged, whether or not they have one in this round; buffers stay with
    their node. Gradients, accumulated and clipped as the user likes, are never changed.

    Each step of a tracking method leaves a message under way. Parameters that are written between steps are therefore
    not what the neighbours get: call `resend()` on all nodes after writing them. Forgetting it raises an error where
    autograd's version counter sees the write (`p.copy_`, `load_state_dict`); a write through `p.data` is not noticed,
    and is lost. `close()`, which is called when the process ends, waits for the last message.

    A subclass names its `method` and, where torch calls a hyper-parameter otherwise than the paper, the `translation`.

    >>> from gossamer.methods import DSGDm
    >>> class HeavyBall(DecentralizedOptimizer):
    ...     method = DSGDm
    >>> optimizer = HeavyBall(nn.Linear(2, 1).parameters(), lr=0.05, hyperparameters={"momentum": 0.8})
    >>> optimizer.step()
    >>> optimizer.round, optimizer.node
    (1, 0)
    """

    method: ClassVar[type[Method]]
    """The update rule, the same as in the simulator."""
    translation: ClassVar[dict[str, str]] = {"momentum": "beta"}
    """Names of hyper-parameters: torch's to the method's."""

    membership: Any = None
    """With `sites=` a `Membership`, which knows who is there."""

    # GradScaler then calls step() on overflow too: a node that kept silent would leave its neighbours waiting.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        hyperparameters: dict[str, Any] | None = None,
        *,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        topology: str | Topology | None = None,
        group: dist.ProcessGroup | DeviceMesh | None = None,
        node: int | str | None = None,
        node_weight: float | None = None,
        model: nn.Module | None = None,
        equal_gradients: Literal["refuse", "allow"] = "refuse",
        overlap: bool = True,
        wire: Literal["bf16"] | None = None,
        timeout: float = TIMEOUT,
        nonfinite: Literal["stop", "skip"] = "stop",
        sites: Sites | None = None,
    ) -> None:
        if nonfinite not in ("stop", "skip"):
            raise InputError(f"nonfinite is 'stop' or 'skip' (a gradient of zero for that round), not {nonfinite!r}.")
        processes = None if sites else find_group(group)
        graph = self._graph(topology, 1 if processes is None else processes.size())
        if sites is not None:
            from gossamer.optim.membership import Membership

            Membership.refuse(group, node, timeout)
            self.membership = Membership(self, sites, topology)
            graph, timeout = self.membership.alone, sites.patience
        if model is not None and equal_gradients != "allow":
            refuse_wrapper(averaging_across(processes, model.parameters()))
        self.network = DistributedNetwork(graph, processes, node=node, wire=wire, timeout=timeout)
        self.overlap = overlap
        self._options = list(hyperparameters or {})
        self._buckets: list[Bucket] = []
        self._held_alike = (node_weight, equal_gradients)
        self._meeting = Meeting(self.network, self.method.facts, *self._held_alike)
        self._nonfinite = nonfinite
        self._overflows = 0
        self.skipped_rounds = 0
        """Rounds that counted as gradient 0 because the gradient was not finite (`nonfinite="skip"`)."""
        self._nothing = False
        self.idle_rounds = 0
        """Rounds in which there was nothing to learn from: calls of `idle`, and the empty batches of Opacus."""
        self.noted = {}
        self._loaded = self._laid_out = False
        self._outdated = False  # whether the gradients belong to another x: this node has just joined
        self._number = next(_numbers)
        defaults = {"lr": lr, "weight_decay": weight_decay, "decoupled": decoupled, **(hyperparameters or {})}
        super().__init__(params, {**defaults, "round": 0})
        _live.add(self)
        if os.environ.get(VARIABLE):
            self.metrics()

    def _graph(self, topology: str | Topology | None, nodes: int) -> Topology:
        """The graph meant by `topology`; one process needs none, and neither does an all-reduce."""
        if topology is None:
            if nodes > 1 and self.method.facts.sends != "all-reduce":
                raise InputError(
                    f"{nodes} nodes take part, but no graph says who talks to whom; give topology='ring' or another."
                )
            topology = "complete"
        return graphs.resolve(topology, nodes, one_node_needs_none=True)

    # What is trained -------------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The number of steps made so far."""
        return int(self.param_groups[0]["round"]) if self.param_groups else 0

    @property
    def node(self) -> int:
        """This process's persistent node id."""
        return self.network.node

    @property
    def node_name(self) -> str:
        """What the node is called, whatever its rank: its label in the topology, or its number."""
        if self.membership is not None:
            return str(self.membership.sites.name)
        labels = self.network.topology.labels
        return labels[self.node] if labels else str(self.node)

    @torch.no_grad()
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, on all nodes in the same round. Their state is allocated at once."""
        now = self.round
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["round"] = now
        try:
            check_group(group, self.method.facts.title)
            self._method_of(group).check(self.network.topology)
            with self._between_steps():
                self._lay_out(self._carried())
        except GossamerError:
            self.param_groups.pop()
            raise

    def method_options(self, group: dict[str, Any]) -> dict[str, Any]:
        """The method's hyper-parameters out of a parameter group."""
        return {self.translation.get(name, name): group[name] for name in self._options}

    def _method_of(self, group: dict[str, Any]) -> Method:
        return self.method(**self.method_options(group))

    def _carried(self) -> dict[Tensor, dict[str, Any]]:
        """The state of the parameters that have already been trained. Messages are waited for."""
        return {p: entry for b in self._buckets if b.born < self.round for p, entry in b.entries()}

    def _lay_out(self, saved: dict[Tensor, dict[str, Any]]) -> None:
        """Arrange the parameters that require a gradient in buckets, with their saved state."""
        self._arrange({p: entry["born"] for p, entry in saved.items()})
        for bucket in self._buckets:
            if bucket.parameters[0] in saved:
                bucket.load([saved[p] for p in bucket.parameters])
        self._laid_out = True

    def _arrange(self, births: Mapping[Tensor, int]) -> None:
        """Make the buckets; parameters whose round of birth is not given start in this round."""
        self._buckets = buckets_for(self.param_groups, births, self.round, self._method_of, self.network)
        self._rules = Rules(self._buckets, self.method, self._options)
        self._trained = [p.requires_grad for g in self.param_groups for p in g["params"]]
        self._meeting.due = True

    # One round -------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One round: the method's update with the present gradients, and its exchange with the neighbours."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if isinstance(loss, float) or (isinstance(loss, Tensor) and loss.numel() == 1):
                self.note(loss=loss)
        self._advance()
        return loss

    def idle(self) -> None:
        """A round in which this node has nothing to learn from: its gradient is zero, and it exchanges all the same.

        For a loop that would otherwise skip `step()`, which would leave the neighbours waiting. `stats()` counts it.
        """
        self._nothing = True
        try:
            self._advance()
        finally:
            self._nothing = False
        self.idle_rounds += 1

    @torch.no_grad()
    def _advance(self) -> None:
        """One round, among whoever is there."""
        if self.membership is None:
            self._step()
        else:
            self.membership.make(self._step)

    def _step(self) -> None:
        now = self._begin()
        rules, scale, overflow = self._meet(now)
        self._exchange(now, rules, partial(self._load_gradients, scale), overflow)

    def _begin(self) -> int:
        """Take over what has changed since the last step; the number of this round."""
        if self._trained != [p.requires_grad for g in self.param_groups for p in g["params"]]:
            self._lay_out(self._carried())
        now = self.round
        for bucket in self._buckets:
            if bucket.born < now:
                self._take_over_writes(bucket)
        return now

    def _meet(self, now: int) -> tuple[list[Rule], float, bool]:
        """The rules of all buckets, what gradients are multiplied by, and whether they overflowed.

        If the nodes have to meet before this step, they do.
        """
        rules, self.network.messenger.settings = self._rules.of(self.param_groups, self.method_options)
        overflow, scale = self._amp()
        if self._meeting.due:
            self._hold(now)
        self._overflows += overflow
        return rules, scale, overflow or self._outdated or self._nothing

    def _hold(self, now: int) -> None:
        """Meet all nodes before the step of this round."""
        rules, self.network.messenger.settings = self._rules.of(self.param_groups, self.method_options)
        overflow, scale = self._amp()
        self._meeting.hold(now, self._facts(), self._buckets, rules, scale, overflow or self._nothing)

    def _facts(self) -> dict[str, str]:
        """In what the parameter groups of all nodes must agree."""
        return group_facts(self.param_groups, [self.method_options(group) for group in self.param_groups])

    def _load_gradients(self, scale: float, bucket: Bucket, rule: Rule, overflow: bool) -> None:
        bucket.load_gradients(scale * self._meeting.scale, rule.weight_decay, overflow)

    def _exchange(
        self, now: int, rules: list[Rule], load: Callable[[Bucket, Rule, bool], None], overflow: bool
    ) -> None:
        """The method's step with what `load(bucket, rule, overflow)` makes the gradient of a bucket."""
        if self.membership is None:
            self._update(now, rules, load, overflow)
        else:
            self.membership.exchange(now, rules, load, overflow)

    def _update(self, now: int, rules: list[Rule], load: Callable[[Bucket, Rule, bool], None], overflow: bool) -> None:
        # What may be refused comes first, for all buckets: a step is made as a whole or not at all.
        for bucket, rule in zip(self._buckets, rules, strict=True):
            load(bucket, rule, overflow)
        if self._nonfinite == "skip" and not all(is_finite(bucket.grad) for bucket in self._buckets):
            self.skipped_rounds += 1
            for bucket, rule in zip(self._buckets, rules, strict=True):
                load(bucket, rule, True)
        for bucket, rule in zip(self._buckets, rules, strict=True):
            if isinstance(rule.shrink, Tensor) or rule.shrink != 1:
                bucket.state.shrink(bucket.x, rule.shrink)
            # What is sent is looked at by the network; what is wrong with it is known here.
            self.network.explain = partial(self._fault, bucket, now)
            try:
                rule.method.step(bucket.state, bucket.x, bucket.grad, rule.lr, self.network, now)
            finally:
                self.network.explain = None
            bucket.write()
            if not self.overlap:
                bucket.drain()
        self._loaded = self._laid_out = self._outdated = False
        for group in self.param_groups:
            group["round"] = now + 1

    def _fault(self, bucket: Bucket, round: int, _: int) -> Fault:
        """What is not finite in a bucket: the gradient of one of its groups, or what the method made of it."""
        where = bucket.not_finite()
        if where is None:
            return Fault("model", self.node, round, lr=float(self.param_groups[bucket.groups[0]]["lr"]))
        group, value = where
        return Fault("gradient", self.node, round, group, value_of(value), float(self.param_groups[group]["lr"]))

    def diverged(self, value: float, what: str = "loss") -> GossamerError:
        """The error to raise instead of a step, on a node whose loss is not finite: all other nodes are told."""
        return self.network.stop(
            Fault(what, self.node, self.round, value=value_of(value), lr=float(self.param_groups[0]["lr"]))
        )

    def _take_over_writes(self, bucket: Bucket) -> None:
        """Continue from what the user has written, or refuse it where the old values are already under way."""
        if not self.method.facts.overlaps or not bucket.state.sends_x:
            bucket.read()
        elif self._loaded and bucket.differs():
            raise InputError(
                "The model's parameters are not those that were saved with this optimizer state; load the model's "
                "checkpoint of the same round, or call resend() on all nodes to continue from the present ones."
            )
        elif bucket.differs() if self._laid_out else bucket.written():  # a new bucket has not seen earlier writes
            raise InputError(
                f"The parameters were written to between two steps, but their old values are already on their way to "
                f"the neighbours (round {self.round}); call resend() on all nodes after writing them."
            )

    def _amp(self) -> tuple[bool, float]:
        """Whether GradScaler found an overflow, and what gradients are to be multiplied by."""
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        return found is not None and bool(found), 1.0 if scale is None else 1.0 / float(scale)

    def _between_steps(self) -> AbstractContextManager[None]:
        """Around what waits for messages outside of a step: where sites come and go, one that is lost is no error."""
        return nullcontext() if self.membership is None else self.membership.finishing_alone()

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> defaultdict[Tensor, dict[str, Any]]:
        """Every parameter's state as views into the flat vectors. Messages under way are waited for."""
        entries: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        with self._between_steps():
            for bucket in self._buckets:
                entries.update(bucket.entries())
        return entries

    @state.setter
    def state(self, value: object) -> None:
        """torch.optim.Optimizer creates and assigns a dictionary; ours is made of the flat vectors."""

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, whatever the types of the parameters: state stays in float32.

        The parameters themselves come from the model's checkpoint, before or after this call. Those that require a
        gradient must be those that did when it was saved.
        """
        with self._unchanged_if_refused():
            self._lay_out(self._take_over(state_dict))
        self._loaded = True

    @torch.no_grad()
    def rejoin(self, state_dict: dict[str, Any], holders: Sequence[int]) -> None:
        """Continue from a saved state among other nodes or on another graph. On all nodes at once, in the same round.

        `holders` are the nodes whose `state_dict` is their own. They keep x and what their method's state says it
        `keeps` (a momentum, a signal); messages of the former nodes are dropped, and tracking methods set Y <- U, which
        restores mean Y = mean U. All other nodes are new: they bring the `state_dict` of any holder and start from the
        mean over the holders. A method whose state does not say what it keeps starts again from the average model.
        """
        with self._unchanged_if_refused():
            saved = self._take_over(state_dict)
            knows = all(bucket.kept is not None for bucket in self._buckets)
            self._arrange({p: entry["born"] for p, entry in saved.items()} if knows else {})
            for bucket in self._buckets:
                bucket.refuse_misfits([saved[p] for p in bucket.parameters])
        rules, self.network.messenger.settings = self._rules.of(self.param_groups, self.method_options)
        for bucket, rule in zip(self._buckets, rules, strict=True):
            bucket.take_mean([saved[p] for p in bucket.parameters], rule.method, holders, self.round)
            if knows:
                bucket.state.rejoin(bucket.x, self.network, self.round)
                bucket.write()
            if not self.overlap:
                bucket.drain()
        self._loaded = self._laid_out = False

    def continue_among(self, state_dict: dict[str, Any], holders: Sequence[int]) -> None:
        """As `rejoin`, while the run goes on: `state_dict` is this node's own, whether it is a holder or not."""
        self.rejoin(state_dict, holders)

    def _take_over(self, state_dict: dict[str, Any]) -> dict[Tensor, dict[str, Any]]:
        """Load the parameter groups; the saved state of every parameter that has one."""
        refuse_foreign_groups(state_dict, [*COMMON, *self._options, "round"], type(self).__name__, self.param_groups[0])
        saved = state_by_parameter(state_dict, self.param_groups)
        for bucket in self._buckets:
            bucket.drain()
        super().load_state_dict({**state_dict, "state": {}})
        for group in self.param_groups:
            group.setdefault("decoupled", False)  # a checkpoint of an older version
        return saved

    @contextmanager
    def _unchanged_if_refused(self) -> Iterator[None]:
        """Around what makes new parameter groups and buckets: where it fails, the present ones stay."""
        before = self.param_groups, self._buckets, self._rules, self._trained, self._laid_out
        due = self._meeting.due
        try:
            yield
        except Exception:
            self.param_groups, self._buckets, self._rules, self._trained, self._laid_out = before
            self._meeting.due = due
            raise

    @torch.no_grad()
    def resend(self) -> None:
        """After writing parameters between two steps: send the new ones to the neighbours. On all nodes alike."""
        with self._between_steps():
            for bucket in self._buckets:
                bucket.read()
                bucket.note()
                if bucket.born < self.round:
                    bucket.resend(self.round)
        self._loaded = self._laid_out = False

    def untouched(self) -> list[Bucket]:
        """The buckets whose parameters the user has not written to since the last step."""
        return [bucket for bucket in self._buckets if not bucket.written()]

    def tracked(self) -> Tensor | None:
        """This node's estimate of the average that the method tracks, flat, in the order of the parameters; or None."""
        method = self._method_of(self.param_groups[0])
        parts: dict[Tensor, Tensor] = {}
        for bucket in self._buckets:
            vector = method.tracked(bucket.state)
            if vector is None:
                return None
            parts.update(bucket.by_parameter(vector))
        every = (p for group in self.param_groups for p in group["params"])
        return torch.cat([parts[p].reshape(-1) for p in every if p in parts]) if parts else None

    def stats(self) -> dict[str, Any]:
        """Rounds, messages, bytes, seconds waited for each peer, and how many rounds counted as gradient zero.

        `overflows` are those that GradScaler found, `skipped` those of nonfinite="skip", `idle` those of `idle()`. With
        `sites=` also who is there and how often that has changed.
        """
        return {
            "round": self.round,
            **self.network.stats(),
            "overflows": self._overflows,
            "skipped": self.skipped_rounds,
            "idle": self.idle_rounds,
            **(self.membership.stats() if self.membership else {}),
        }

    def close(self) -> None:
        """Part from the other nodes: see `DistributedNetwork.close`. Called when the process ends."""
        if self.membership is not None:
            self.membership.close()
        else:
            self.network.close()


def live_optimizers() -> list[DecentralizedOptimizer]:
    """All optimizers of this process that are in use, in the order in which they were made, as on all nodes."""
    return sorted(_live, key=lambda optimizer: optimizer._number)
