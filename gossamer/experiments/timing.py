"""How long an experiment is and when it is evaluated, as `simulate` and the real nodes are told."""

from typing import TypedDict

from gossamer.data import NodeData
from gossamer.engine import StepSize, step_sizes
from gossamer.experiments.experiment import Experiment


class Timing(TypedDict):
    """Arguments of `gossamer.simulate` and of `gossamer.engine.pace.pace_of`."""

    lr: StepSize
    rounds: int
    evaluate_every: float


def timing(experiment: Experiment, nodes: NodeData) -> Timing:
    """The schedule of the step size, the rounds of the run, and the epochs between its evaluations."""
    per_epoch = nodes.rounds_per_epoch(experiment.batch_size)
    total = experiment.rounds or round(experiment.epochs * per_epoch)
    return {
        "lr": step_sizes.get(experiment.schedule, experiment.lr, experiment.warm_up),
        "rounds": total,
        "evaluate_every": total / per_epoch / experiment.evaluations,
    }
