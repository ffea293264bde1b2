"""The methods as optimizers for real nodes, one process per node, started by torchrun or, with `sites=`, by themselves.

optimizer = gossamer.optim.MomentumTracking(model.parameters(), lr=0.05, momentum=0.9, topology="ring")
"""

from gossamer.optim.checkpointing import Checkpoints
from gossamer.optim.decentralized import DecentralizedOptimizer
from gossamer.optim.optimizers import (
    BEER,
    D2,
    DSGD,
    EDM,
    KGT,
    LED,
    ABm,
    AllReduceSGDm,
    ChocoSGD,
    ChocoSGDm,
    DecentLaM,
    DSGDm,
    GradientTracking,
    GTAdam,
    MomentumTracking,
    MoTEF,
    Options,
    QGDSGDm,
    RelaySum,
    RelaySumM,
    optimizer_of,
)
from gossamer.optim.outer import Outer
from gossamer.optim.training_loop import average_, averaged, rounds

ALL = (
    DSGD,
    DSGDm,
    QGDSGDm,
    DecentLaM,
    GradientTracking,
    MomentumTracking,
    ABm,
    GTAdam,
    D2,
    RelaySum,
    RelaySumM,
    AllReduceSGDm,
    EDM,
    LED,
    KGT,
    ChocoSGD,
    ChocoSGDm,
    BEER,
    MoTEF,
)
"""All optimizers, in the order in which tables list the methods."""

__all__ = [
    "ALL",
    "BEER",
    "D2",
    "DSGD",
    "EDM",
    "KGT",
    "LED",
    "ABm",
    "AllReduceSGDm",
    "Checkpoints",
    "ChocoSGD",
    "ChocoSGDm",
    "DSGDm",
    "DecentLaM",
    "DecentralizedOptimizer",
    "GTAdam",
    "GradientTracking",
    "MoTEF",
    "MomentumTracking",
    "Options",
    "Outer",
    "QGDSGDm",
    "RelaySum",
    "RelaySumM",
    "average_",
    "averaged",
    "optimizer_of",
    "rounds",
]
