"""The error messages of the troubleshooting page, each produced by making the mistake."""

import os
from collections.abc import Callable
from unittest.mock import patch

import torch

import gossamer as gs
from gossamer.data import catalog, loading
from gossamer.errors import InputError
from gossamer.network.agreement import check_same
from gossamer.network.faults import Fault
from gossamer.optim.process_group import find_group


def _not_initialized() -> None:
    with patch.dict(os.environ, WORLD_SIZE="4"):
        find_group(None)


def _written_between_steps() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = gs.optim.MomentumTracking(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model.weight.zero_()


def _diverges() -> None:
    raise gs.engine.DivergenceError(node=3, round=120, value=float("nan"), lr=0.5)


def _silent_peer() -> None:
    raise Fault("silent", 3, 120).error("node {}".format, timeout=1800.0)


def _peer_gone() -> None:
    raise Fault("closed", 3, 120).error("node {}".format, timeout=1800.0)


def _not_on_this_machine() -> None:
    # The page shows the reader's own cache, not that of the machine that builds it.
    with patch.dict(os.environ, XDG_CACHE_HOME="~/.cache"):
        os.environ.pop(loading.VARIABLE, None)
        message = str(loading.missing(catalog.CIFAR_10, None)).replace(str(loading.cache_dir()), "~/.cache/gossamer")
    raise InputError(message.split(" (")[0])


MISTAKES: dict[str, Callable[[], object]] = {
    "schedule": lambda: gs.DecentLaM().check(gs.topology.one_peer_exponential(8)),
    "tree": lambda: gs.RelaySum().check(gs.topology.ring(8)),
    "eigenvalue": lambda: gs.D2().check(gs.topology.ring(8)),
    "hypercube": lambda: gs.topology.hypercube(12),
    "disconnected": lambda: gs.topology.from_edges([(0, 1), (2, 3)]),
    "not-stochastic": lambda: gs.topology.from_matrix([[0.9, 0.2], [0.1, 0.8]]),
    "typing-mistake": lambda: gs.methods.get("momentum-traking"),
    "few-classes": lambda: gs.partition.k_class(nodes=4, k=2)(torch.arange(1000) % 10),
    "small-alpha": lambda: gs.partition.dirichlet(nodes=16, alpha=0.01, min_size=50)(torch.arange(1600) % 10),
    "nodes-differ": lambda: gs.minimize(
        gs.problems.Quadratic.synthetic(nodes=4, dim=2), gs.DSGD(), gs.topology.ring(8), lr=0.1, rounds=1
    ),
    "length": lambda: gs.simulate(
        gs.models.SmallCNN, gs.data.load("digits").split(gs.partition.iid(nodes=2)), "dsgd", "ring", lr=0.1
    ),
    "diverges": _diverges,
    "missing-data": _not_on_this_machine,
    "not-initialized": _not_initialized,
    "written": _written_between_steps,
    "disagree": lambda: check_same([{"lr": 0.05}, {"lr": 0.05}, {"lr": 0.01}], ours=2),
    "silent": _silent_peer,
    "gone": _peer_gone,
}


def sentence(name: str) -> str:
    """The message for the mistake called `name`."""
    try:
        MISTAKES[name]()
    except gs.GossamerError as error:
        return f"> {error}"
    raise RuntimeError(f"the mistake '{name}' went unnoticed")
