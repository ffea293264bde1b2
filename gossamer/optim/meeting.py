"""The meeting of all nodes before the first step, and whenever they have changed what they train."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from gossamer._common.checks import check_choice
from gossamer.errors import InputError, PeerError
from gossamer.methods import Facts
from gossamer.network import DistributedNetwork
from gossamer.optim.bucket import Bucket
from gossamer.optim.param_groups import Rule
from gossamer.optim.process_group import averaging_across

REMEDY = (
    "Train without DistributedDataParallel or FSDP across nodes, every node with its own data: Lightning with "
    "gossamer.integrations.lightning.GossipStrategy, Hugging Face with "
    "gossamer.integrations.transformers.GossipTrainer; if you mean it, give the optimizer equal_gradients='allow'."
)

_FIXED = ("method", "graph", "node_weight", "wire format", "equal_gradients", "inner optimizer")
"""What a node cannot take over from others."""
_COUNTS = 64
"""Bytes that a message may hold besides its vectors: RelaySum's counts."""


class Meeting:
    """Where the nodes check that they were started alike, start from equal parameters, and learn the nodes' weights.

    Unless equal gradients are allowed, it also refuses to start where something else already averages the gradients.
    """

    def __init__(
        self, network: DistributedNetwork, method: Facts, node_weight: float | None, equal_gradients: str = "refuse"
    ) -> None:
        check_choice("The optimizer", "equal_gradients", equal_gradients, ("refuse", "allow"))
        self._network, self._method = network, method
        self._equal_gradients = equal_gradients
        self._node_weight = None if node_weight is None else _weight(node_weight)
        self._room: int | None = None
        self.due = True
        """Whether the nodes have to meet before the next step."""
        self.scale = 1.0
        """What this node's gradients are multiplied by: its weight over the mean weight, or 1 without weights."""

    def hold(
        self,
        round: int,
        facts: dict[str, str],
        buckets: Sequence[Bucket],
        rules: Sequence[Rule],
        scale: float,
        overflow: bool,
    ) -> None:
        """Compare the method, the round and `facts` with all nodes, and start the buckets that were born in `round`.

        Where the nodes differ in x, that of node 0 wins. `scale` and `overflow` are GradScaler's, as in
        `Bucket.load_gradients`.
        """
        self._announce(round, buckets)
        starting = [(b, r) for b, r in zip(buckets, rules, strict=True) if b.born == round]
        wrapper = "" if self._equal_gradients == "allow" else self._wrapper(buckets)
        if wrapper:
            starting, facts = [], {}  # FSDP leaves parameters of other shapes
        digests = []
        for bucket, _ in starting:
            bucket.read()
            bucket.note()
            bucket.load_gradients(scale, 0.0, overflow)
            seen = _digest(bucket.grad) if bool(bucket.grad.any()) else ""
            digests.append((_digest(bucket.x), seen))
        told = self._network.join(
            {"method": self._method.title, "round": round, "equal_gradients": self._equal_gradients, **facts},
            {"starting": digests, "weight": self._node_weight, "wrapper": wrapper},
        )
        if self._equal_gradients == "refuse" and self._network.n > 1:
            try:
                _refuse_averaging(told)
            except InputError:
                with suppress(PeerError):
                    self._network.join()  # nobody leaves before all know why
                raise
        self._weigh([t["weight"] for t in told])
        for k, (bucket, rule) in enumerate(starting):
            if len({t["starting"][k][0] for t in told}) > 1:
                self._network.broadcast(bucket.x)
                bucket.write()
            bucket.begin(rule.method)
        self.due = False

    def _wrapper(self, buckets: Sequence[Bucket]) -> str:
        return averaging_across(self._network.group, (p for bucket in buckets for p in bucket.parameters))

    def _announce(self, round: int, buckets: Sequence[Bucket]) -> None:
        """Before every meeting but the first, announce it: the neighbours may expect an ordinary message instead."""
        everyone = self._method.sends == "all-reduce"
        if self._room is not None:
            self._network.announce_change(round + self._method.overlaps, self._room, to_all=everyone)
        width = 8 if self._method.compresses else 1  # a compressed vector may be sent as it is, in float64
        longest = max((max(bucket.x.nbytes, width * bucket.x.numel()) for bucket in buckets), default=0)
        self._room = longest * (1 if self._method.sends == "all-reduce" else self._method.sends) + _COUNTS

    def _weigh(self, weights: list[float | None]) -> None:
        given = [w for w in weights if w is not None]
        if given and len(given) < len(weights):
            silent = [i for i, w in enumerate(weights) if w is None]
            raise PeerError(f"Some nodes gave a node_weight, but {silent} did not; give it on all nodes or on none.")
        if self._node_weight is not None:
            self.scale = self._node_weight * self._network.n / sum(given)


def odd_ones_out(facts: Mapping[int, dict[str, Any]], leader: int, behind: Collection[int]) -> dict[int, str]:
    """The nodes that say something else than the leader, and of what. Those behind may differ in what they take over.

    >>> odd_ones_out({0: {"method": "DSGD", "lr": "1"}, 1: {"method": "DSGD", "lr": "2"}}, leader=0, behind=[])
    {1: 'lr'}
    """
    odd: dict[int, str] = {}
    for node, said in facts.items():
        for key in {**facts[leader], **said}:
            counts = node not in behind or key in _FIXED or key.startswith("parameter ")
            if counts and said.get(key) != facts[leader].get(key):
                odd.setdefault(node, key)
    return odd


def refuse_wrapper(wrapper: str) -> None:
    """Raise if `averaging_across` has found something."""
    if wrapper:
        raise InputError(
            f"The model is wrapped in {wrapper}: it averages their gradients before the optimizer sees them, and no "
            f"node would train on its own data. {REMEDY}"
        )


def _refuse_averaging(told: Sequence[dict[str, Any]]) -> None:
    """Raise, on all nodes alike, if something already averages the gradients, or if they are all the same."""
    refuse_wrapper(max(t["wrapper"] for t in told))
    gradients = {tuple(seen for _, seen in t["starting"]) for t in told}
    first = gradients.pop()
    if first and not gradients and all(first):
        raise InputError(
            "All nodes have the same first gradient to the bit: either something already averages their gradients, or "
            f"they all read the same data (a seed that is the same on all nodes?). {REMEDY}"
        )


def _weight(given: float) -> float:
    """The weight as a number that can be told to all."""
    try:
        weight = float(given)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(
            f"node_weight is {given!r}, but a node needs a weight above 0, for instance the number of its examples."
        )
    return weight


def _digest(vector: Tensor) -> str:
    return hashlib.sha256(vector.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
