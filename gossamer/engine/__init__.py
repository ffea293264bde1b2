"""N nodes on one machine: deep learning by `simulate`, problems with known answers by `minimize`."""

from gossamer.engine.churn import Churn
from gossamer.engine.history import History
from gossamer.engine.minimize import Trajectory, minimize
from gossamer.engine.schedule import Constant, Cosine, StepDecay, StepSize, WarmUp
from gossamer.engine.simulate import Run, simulate
from gossamer.errors import DivergenceError

__all__ = [
    "Churn",
    "Constant",
    "Cosine",
    "DivergenceError",
    "History",
    "Run",
    "StepDecay",
    "StepSize",
    "Trajectory",
    "WarmUp",
    "minimize",
    "simulate",
]
