"""What every optimizer takes besides the hyper-parameters of its method."""

from typing import Literal, TypedDict

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from gossamer import topology as graphs
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.topology import Topology


class Options(TypedDict, total=False):
    """What every optimizer takes besides the hyper-parameters of its method.

    >>> import torch
    >>> from gossamer.optim import DSGD
    >>> shared: Options = {"topology": "ring", "weight_decay": 1e-3}
    >>> DSGD(torch.nn.Linear(2, 1).parameters(), lr=0.05, **shared).param_groups[0]["weight_decay"]
    0.001
    """

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


def chosen_graph(topology: str | Topology | None, size: int, method: type[Method]) -> Topology:
    """The graph that `topology` means for so many nodes; one process needs none, and an all-reduce neither."""
    if size == 1 and not isinstance(topology, Topology):
        return graphs.complete(1)
    if topology is None:
        if method.facts.sends != "all-reduce":
            raise InputError(
                f"{size} nodes take part, but nobody said who talks to whom; give topology='ring' or another graph."
            )
        topology = "complete"
    return graphs.get(topology, size)
