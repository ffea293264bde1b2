"""What all optimizers share: a method of the simulator behind the face of torch.optim.Optimizer."""

import hashlib
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypedDict
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from gossamer import topology as graphs
from gossamer.errors import GossamerError
from gossamer.methods import Method
from gossamer.methods.arithmetic import Scalar
from gossamer.network import DistributedNetwork
from gossamer.network.distributed import TIMEOUT
from gossamer.optim.bucket import Bucket, work_type
from gossamer.optim.processes import find_group, refuse_averaging_across
from gossamer.topology import Topology


class Options(TypedDict, total=False):
    """What every optimizer takes besides the hyper-parameters of its method."""

    weight_decay: float
    """L2: weight_decay * x is added to the gradient, before anything else; by default 0."""
    topology: str | Topology | None
    """Who talks to whom: a name such as "ring", a `Topology`, or a schedule. One process needs none."""
    group: dist.ProcessGroup | DeviceMesh | None
    """The processes that are nodes: a process group or one dimension of a DeviceMesh; by default all."""
    node: int | str | None
    """This process's persistent node id, a number or a label of the topology; by default GOSSAMER_NODE, or its rank."""
    node_weight: float | None
    """The share of this node in the common objective, for instance the number of its examples; by default equal."""
    model: nn.Module | None
    """The model, to check that no DistributedDataParallel spans several nodes."""
    overlap: bool
    """Whether the message of a tracking method travels during the next gradient (same trajectory); by default so."""
    wire: Literal["bf16"] | None
    """bf16 halves the messages and keeps the mean; by default vectors travel as they are."""
    timeout: float
    """Seconds until a silent peer is given up; by default half an hour."""


_COMMON = ("lr", "weight_decay")
_COUNTS = 64
"""Bytes that a message may hold besides its vectors: RelaySum's counts."""
_live: WeakSet["DecentralizedOptimizer"] = WeakSet()


class DecentralizedOptimizer(torch.optim.Optimizer):
    """One node of a decentralized method, as an optimizer.

    Every process calls `step()` equally often. In the first step the nodes make sure that they were started alike and,
    in round 0, that they hold equal parameters (those of node 0 win). Parameters that require a gradient are exchanged,
    whether or not they have one in this round; buffers stay with their node. Gradients, accumulated and clipped as the
    user likes, are never changed.

    Under overlap each step of a tracking method leaves its message under way. Parameters that are written between steps
    are therefore not what the neighbours get: call `resend()` on all nodes after writing them. Whoever forgets it is
    told so, except after a single write through `p.data` to a part of the model: that goes behind autograd's back and
    may be lost. `close()`, which the exit of the process calls, waits for the last message.

    A subclass names its `method` and, where torch calls a hyper-parameter otherwise than the paper, the `translation`.
    """

    method: ClassVar[type[Method]]
    """The update rule, the very one of the simulator."""
    translation: ClassVar[dict[str, str]] = {"momentum": "beta"}
    """Names of hyper-parameters: torch's to the method's."""

    # GradScaler then calls step() on overflow too: a node that kept silent would leave its neighbours waiting.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        hyperparameters: dict[str, Any] | None = None,
        *,
        weight_decay: float = 0.0,
        topology: str | Topology | None = None,
        group: dist.ProcessGroup | DeviceMesh | None = None,
        node: int | str | None = None,
        node_weight: float | None = None,
        model: nn.Module | None = None,
        overlap: bool = True,
        wire: Literal["bf16"] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        processes = find_group(group)
        size = 1 if processes is None else processes.size()
        graph = self._graph(topology, size)
        if model is not None:
            refuse_averaging_across(model, processes)
        if node_weight is not None and not node_weight > 0:
            raise GossamerError(
                f"node_weight is {node_weight!r}, but a node needs a weight above 0: say, its examples."
            )
        self.network = DistributedNetwork(graph, processes, node=node, wire=wire, timeout=timeout)
        self.overlap = overlap
        self._options = list(hyperparameters or {})
        self._watched = ["weight_decay", *self._options]
        self._node_weight = node_weight
        self._scale = 1.0
        self._buckets: list[Bucket] = []
        self._rule: tuple[Any, list[_Rule]] = (None, [])
        self._overflows = 0
        self._met = self._loaded = False
        self._room: int | None = None
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **(hyperparameters or {}), "round": 0})
        _live.add(self)

    def _graph(self, topology: str | Topology | None, size: int) -> Topology:
        if size == 1 and not isinstance(topology, Topology):
            return graphs.complete(1)
        if topology is None:
            if self.method.facts.sends != "all-reduce":
                raise GossamerError(
                    f"{size} nodes take part, but nobody said who talks to whom; give topology='ring' or another graph."
                )
            topology = "complete"
        return graphs.get(topology, size)

    # What is trained -------------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The number of steps made so far."""
        return int(self.param_groups[0]["round"]) if self.param_groups else 0

    @property
    def node(self) -> int:
        """This process's persistent node id."""
        return self.network.node

    @torch.no_grad()
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, on all nodes in the same round. Their state is allocated at once."""
        now = self.round
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["round"] = now
        try:
            self._check_group(group)
            self._lay_out(self._carried())
        except GossamerError:
            self.param_groups.pop()
            raise

    def _check_group(self, group: dict[str, Any]) -> None:
        title = self.method.facts.title
        for name in _COMMON:
            value = float(group[name])
            if not (value >= 0 and value != float("inf")):
                raise GossamerError(f"{title} needs a finite {name} of at least 0, but {name} is {value:g}.")
        for parameter in group["params"]:
            if not parameter.is_floating_point():
                raise GossamerError(f"{title} trains real parameters, but one is of type {parameter.dtype}.")
        self.method(**self.method_options(group)).check(self.network.topology)

    def method_options(self, group: dict[str, Any]) -> dict[str, Any]:
        """The method's hyper-parameters out of a parameter group."""
        return {self.translation.get(name, name): group[name] for name in self._options}

    def _carried(self) -> dict[Tensor, dict[str, Any]]:
        """The state of the parameters that have already been trained. Messages are waited for."""
        return {p: entry for b in self._buckets if b.born < self.round for p, entry in b.entries()}

    def _lay_out(self, saved: dict[Tensor, dict[str, Any]]) -> None:
        """Arrange the parameters that require a gradient in buckets, with their saved state."""
        self._arrange({p: entry["born"] for p, entry in saved.items()})
        for bucket in self._buckets:
            if bucket.parameters[0] in saved:
                bucket.load([saved[p] for p in bucket.parameters])

    def _arrange(self, births: Mapping[Tensor, int]) -> None:
        """Make the buckets; parameters whose round of birth is not given start in this round."""
        places: defaultdict[tuple[int, str, str], list[tuple[Tensor, int]]] = defaultdict(list)
        for number, group in enumerate(self.param_groups):
            for parameter in group["params"]:
                if parameter.requires_grad:
                    born = births.get(parameter, self.round)
                    key = (born, str(work_type(parameter.dtype)), str(parameter.device))
                    places[key].append((parameter, number))
        self._rule = (None, [])
        self._buckets = []
        for (born, *_), members in sorted(places.items(), key=lambda place: place[0]):
            parameters, numbers = zip(*members, strict=True)
            method = self.method(**self.method_options(self.param_groups[numbers[0]]))
            self._buckets.append(Bucket(parameters, numbers, method, self.network, born))
        self._trained = [p.requires_grad for g in self.param_groups for p in g["params"]]
        self._met = False

    # One round -------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One round: the method's update with the present gradients, and its exchange with the neighbours."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # What torch.no_grad() does, without the four microseconds that it takes: a step has about two hundred.
        recording = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            self._step()
        finally:
            torch._C._set_grad_enabled(recording)
        return loss

    def _step(self) -> None:
        if self._trained != [p.requires_grad for g in self.param_groups for p in g["params"]]:
            self._lay_out(self._carried())
        now = self.round
        rules, self.network.settings = self._rules()
        self.network.now = now
        overflow, scale = self._amp()
        if not self._met:
            self._meet(rules, overflow, scale)
        self._overflows += overflow
        scale *= self._scale
        for bucket, rule in zip(self._buckets, rules, strict=True):
            self._follow(bucket)
            bucket.load_gradients(scale, rule.weight_decay, overflow)
            rule.method.step(bucket.state, bucket.x, bucket.grad, rule.lr, bucket.net, now - bucket.born)
            bucket.write()
            if not self.overlap:
                bucket.drain()
        self._loaded = False
        for group in self.param_groups:
            group["round"] = now + 1

    def _follow(self, bucket: Bucket) -> None:
        """Take over parameters that the user has written, or say why that cannot be done silently."""
        if bucket.born == self.round:
            return
        if not self.method.facts.overlaps:
            bucket.read()
        elif bucket.written(thoroughly=self._loaded):
            if self._loaded:
                raise GossamerError(
                    "The model's parameters are not those that were saved with this optimizer state; load the model's "
                    "checkpoint of the same round, or call resend() on all nodes to go on from the present ones."
                )
            raise GossamerError(
                f"The parameters were written to between two steps, but their old values are already on their way to "
                f"the neighbours (round {self.round}); call resend() on all nodes after writing them."
            )

    def _amp(self) -> tuple[bool, float]:
        """Whether GradScaler found an overflow, and what gradients are to be multiplied by."""
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        return found is not None and bool(found), 1.0 if scale is None else 1.0 / float(scale)

    def _rules(self) -> tuple[list["_Rule"], tuple[float, int]]:
        """The method, step size and weight decay of every bucket, made anew only where the user changed something."""
        key = [(float(g["lr"]), *[g[name] for name in self._watched]) for g in self.param_groups]
        if key != self._rule[0]:
            options = [self.method_options(group) for group in self.param_groups]
            common = [[float(group[name]) for group in self.param_groups] for name in _COMMON]
            rules = [
                _Rule(
                    self.method(**self._blend(bucket, options)),
                    bucket.coefficient(common[0]),
                    bucket.coefficient(common[1]),
                )
                for bucket in self._buckets
            ]
            self._rule = (key, rules)
            self._settings = (common[0][0], zlib.crc32(repr(key).encode()))
        return self._rule[1], self._settings

    def _blend(self, bucket: Bucket, options: list[dict[str, Any]]) -> dict[str, Any]:
        blended: dict[str, Any] = {}
        for name, first in options[bucket.groups[0]].items():
            values = [o[name] for o in options]
            mine = {values[g] for g in bucket.groups}
            if len(mine) > 1 and any(isinstance(v, bool | str) or v is None for v in mine):
                raise GossamerError(
                    f"The parameter groups differ in {name} ({' and '.join(sorted(map(str, mine)))}), which all must "
                    f"share; only numbers such as lr, weight_decay and momentum can be a group's own."
                )
            blended[name] = bucket.coefficient(values) if len(mine) > 1 else first
        return blended

    # The first step --------------------------------------------------------------------------------------------------

    def _meet(self, rules: list["_Rule"], overflow: bool, scale: float) -> None:
        """Compare with all nodes, make equal what starts in this round, and learn the nodes' weights."""
        sends = self.method.facts.sends
        if self._room is not None:
            self.network.announce_change(
                self.round + self.method.facts.overlaps, self._room, to_all=sends == "all-reduce"
            )
        longest = max((bucket.x.nbytes for bucket in self._buckets), default=0)
        self._room = longest * (1 if sends == "all-reduce" else sends) + _COUNTS
        starting = [(b, r) for b, r in zip(self._buckets, rules, strict=True) if b.born == self.round]
        digests = []
        for bucket, _ in starting:
            bucket.read()
            bucket.note()
            bucket.load_gradients(scale, 0.0, overflow)
            seen = _digest(bucket.grad) if bool(bucket.grad.any()) else ""
            digests.append((_digest(bucket.x), seen))
        told = self.network.join(self._facts(), {"starting": digests, "weight": self._node_weight})
        if len({t["weight"] is None for t in told}) > 1:
            silent = [i for i, t in enumerate(told) if t["weight"] is None]
            raise GossamerError(
                f"Some nodes gave a node_weight, but {silent} did not; give it on all nodes or on none."
            )
        if self._node_weight is not None:
            self._scale = self._node_weight * self.network.n / sum(t["weight"] for t in told)
        for k, (bucket, rule) in enumerate(starting):
            if len({t["starting"][k][0] for t in told}) > 1:
                self.network.broadcast(bucket.x)
                bucket.write()
            bucket.begin(rule.method)
        gradients = {tuple(seen for _, seen in t["starting"]) for t in told}
        if starting and self.network.n > 1 and len(gradients) == 1 and all(gradients.pop()):
            warnings.warn(
                "All nodes have the same first gradient to the bit: either they all read the same data, or something "
                "(DistributedDataParallel over all nodes?) already averages their gradients.",
                stacklevel=4,
            )
        self._met = True

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"method": self.method.facts.title, "round": self.round}
        for number, group in enumerate(self.param_groups):
            where = f" of parameter group {number}" if len(self.param_groups) > 1 else ""
            values = {
                "lr": float(group["lr"]),
                "weight_decay": float(group["weight_decay"]),
                **self.method_options(group),
            }
            facts |= {name + where: str(value) for name, value in values.items()}
            names = group.get("param_names") or range(len(group["params"]))
            for name, p in zip(names, group["params"], strict=True):
                kind = "" if p.requires_grad else ", frozen"
                facts[f"parameter {name}{where}"] = f"{list(p.shape)} {str(p.dtype).removeprefix('torch.')}{kind}"
        return facts

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> defaultdict[Tensor, dict[str, Any]]:
        """Every parameter's state as views into the flat vectors. Messages under way are waited for."""
        entries: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for bucket in self._buckets:
            entries.update(bucket.entries())
        return entries

    @state.setter
    def state(self, value: object) -> None:
        """torch.optim.Optimizer creates and assigns a dictionary; ours is made of the flat vectors."""

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, whatever the types of the parameters: state stays in float32.

        The parameters themselves come from the model's checkpoint, before or after this call.
        """
        self._lay_out(self._take_over(state_dict))
        self._loaded = True

    @torch.no_grad()
    def rejoin(self, state_dict: dict[str, Any], holders: Sequence[int]) -> None:
        """Go on from a saved state among other nodes or on another graph. On all nodes at once, in the same round.

        `holders` are the nodes whose `state_dict` is their own. They keep x and what their method's state says it
        `keeps` (a momentum, a signal); messages of the former nodes are dropped, and tracking methods set Y <- U, which
        restores mean Y = mean U. All other nodes are new: they bring the `state_dict` of any holder and start from the
        mean over the holders. A method whose state does not say what it keeps starts anew from the average model.
        """
        saved = self._take_over(state_dict)
        knows = all(bucket.kept is not None for bucket in self._buckets)
        self._arrange({p: entry["born"] for p, entry in saved.items()} if knows else {})
        rules, self.network.settings = self._rules()
        self.network.now = self.round
        for bucket, rule in zip(self._buckets, rules, strict=True):
            bucket.take_mean([saved[p] for p in bucket.parameters], rule.method, self.network, holders)
            if knows:
                bucket.state.rejoin(bucket.x, bucket.net, self.round - bucket.born)
            if not self.overlap:
                bucket.drain()
        self._loaded = False

    def _take_over(self, state_dict: dict[str, Any]) -> dict[Tensor, dict[str, Any]]:
        """Load the parameter groups; the saved state of every parameter that has one."""
        for group in state_dict["param_groups"]:
            lacking = {*_COMMON, *self._options, "round"} - group.keys()
            if lacking:
                raise GossamerError(
                    f"The checkpoint says nothing of {', '.join(sorted(lacking))}: it was saved by another optimizer "
                    f"or version, not by {type(self).__name__}."
                )
        for bucket in self._buckets:
            bucket.drain()
        super().load_state_dict({**state_dict, "state": {}})
        numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        saved = {
            p: state_dict["state"][n] for n, p in zip(numbers, parameters, strict=True) if n in state_dict["state"]
        }
        lost = [n for n, p in zip(numbers, parameters, strict=True) if p.requires_grad and p not in saved]
        if lost:
            raise GossamerError(
                f"The checkpoint holds no state for the parameters {lost}; they were frozen when it was written, or it "
                f"was written by another optimizer: freeze and unfreeze before loading as it was before saving."
            )
        return saved

    @torch.no_grad()
    def resend(self) -> None:
        """After writing parameters between two steps: let the neighbours have the new ones. On all nodes alike."""
        for bucket in self._buckets:
            bucket.read()
            bucket.note()
            if bucket.born < self.round:
                bucket.resend(self.round)
        self._loaded = False

    def untouched(self) -> list[Bucket]:
        """The buckets whose parameters nobody has written to since the last step."""
        return [bucket for bucket in self._buckets if not bucket.written(thoroughly=True)]

    def stats(self) -> dict[str, Any]:
        """Rounds, messages, bytes, seconds waited for each peer, and rounds in which GradScaler found an overflow."""
        return {"round": self.round, **self.network.stats(), "overflows": self._overflows}

    def close(self) -> None:
        """Wait for the last message, so that this process may leave. Called when the process ends."""
        self.network.close()


class _Rule:
    """What a bucket's step needs besides its vectors."""

    __slots__ = ("lr", "method", "weight_decay")

    def __init__(self, method: Method, lr: Scalar, weight_decay: Scalar) -> None:
        self.method, self.lr, self.weight_decay = method, lr, weight_decay


def _digest(vector: Tensor) -> str:
    return hashlib.sha256(vector.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def live_optimizers() -> list[DecentralizedOptimizer]:
    """All optimizers of this process that are in use."""
    return list(_live)
