"""Small runs that several test files share."""

from functools import cache

import torch

from gossamer import data, models, simulate
from gossamer.data import Augmentation, NodeData
from gossamer.engine import Run

ROUNDS = 6


@cache
def digit_nodes(nodes: int = 4, k: int = 3, equal_sizes: bool = True, augmented: bool = False) -> NodeData:
    """The embedded digits, k classes per node, cut down so that evaluations cost nothing."""
    full = data.load("digits")
    small = data.Dataset.from_tensors(
        full.train_inputs[:600],
        full.train_targets[:600],
        test=(full.test_inputs[:60], full.test_targets[:60]),
        normalization=full.normalization,
        augmentation=Augmentation(padding=1) if augmented else None,
        name="small digits",
    )
    return small.split(data.partition.k_class(nodes=nodes, k=k, seed=0, equal_sizes=equal_sizes))


def run_digits(**changes: object) -> Run:
    """A run of a few rounds; any argument of `simulate` can be changed."""
    arguments: dict[str, object] = {
        "model": models.SmallCNN,
        "data": digit_nodes(),
        "method": "momentum-tracking",
        "graph": "ring",
        "lr": 0.05,
        "batch_size": 16,
        "rounds": ROUNDS,
    }
    return simulate(**{**arguments, **changes})  # type: ignore[arg-type]


def same_bits(a: Run, b: Run) -> bool:
    """Whether two runs ended in the same models."""
    return torch.equal(a.simulation.models.x, b.simulation.models.x)
