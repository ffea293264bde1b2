"""Gossamer: decentralized deep learning on heterogeneous data.

Every public name is reachable from here and loaded when it is first used, so that `import gossamer` costs nothing:

>>> import gossamer as gs
>>> gs.topology.ring(8)
Topology('ring', n=8, degree=2, period=1)
>>> gs.MomentumTracking(beta=0.9)
MomentumTracking(beta=0.9, init='theorem')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gossamer._version import __version__

if TYPE_CHECKING:
    from gossamer import data, engine, errors, methods, models, network, optim, problems, testing, theory, topology
    from gossamer.data import partition
    from gossamer.engine import minimize, simulate
    from gossamer.errors import GossamerError
    from gossamer.methods import (
        D2,
        DSGD,
        ABm,
        AllReduceSGDm,
        DecentLaM,
        DSGDm,
        Facts,
        GradientTracking,
        GTAdam,
        Method,
        MomentumTracking,
        Needs,
        QGDSGDm,
        RelaySum,
        RelaySumM,
        State,
    )
    from gossamer.optim import average_, averaged, rounds

_ROOMS = (
    "data",
    "engine",
    "errors",
    "methods",
    "models",
    "network",
    "optim",
    "problems",
    "testing",
    "theory",
    "topology",
)
_HOME = {
    "GossamerError": "errors",
    "minimize": "engine",
    "partition": "data",
    "simulate": "engine",
    **dict.fromkeys(("average_", "averaged", "rounds"), "optim"),
    **dict.fromkeys(
        (
            "ABm",
            "AllReduceSGDm",
            "D2",
            "DSGD",
            "DSGDm",
            "DecentLaM",
            "Facts",
            "GTAdam",
            "GradientTracking",
            "Method",
            "MomentumTracking",
            "Needs",
            "QGDSGDm",
            "RelaySum",
            "RelaySumM",
            "State",
        ),
        "methods",
    ),
}

__all__ = [
    "D2",
    "DSGD",
    "ABm",
    "AllReduceSGDm",
    "DSGDm",
    "DecentLaM",
    "Facts",
    "GTAdam",
    "GossamerError",
    "GradientTracking",
    "Method",
    "MomentumTracking",
    "Needs",
    "QGDSGDm",
    "RelaySum",
    "RelaySumM",
    "State",
    "__version__",
    "average_",
    "averaged",
    "data",
    "engine",
    "errors",
    "methods",
    "minimize",
    "models",
    "network",
    "optim",
    "partition",
    "problems",
    "rounds",
    "simulate",
    "testing",
    "theory",
    "topology",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"gossamer.{name}")
    if name in _HOME:
        return getattr(import_module(f"gossamer.{_HOME[name]}"), name)
    raise AttributeError(f"module 'gossamer' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
