"""How good the nodes' models are, and how far apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data.augment import Pipeline
from gossamer.engine.workers import Workers

BATCH = 500


@dataclass(frozen=True)
class Scores:
    """Accuracy and mean loss of each of several models on one set of samples."""

    accuracy: list[float]
    loss: list[float]


def evaluate(
    models: Sequence[nn.Module],
    samples: tuple[Tensor, Tensor],
    pipeline: Pipeline,
    workers: Workers,
    device: torch.device,
) -> Scores:
    """Score every model on all samples, model by model on the workers, in evaluation mode."""
    inputs, targets = samples
    right = torch.zeros(len(models), dtype=torch.int64)
    loss = torch.zeros(len(models), dtype=torch.float64)

    def one(k: int) -> None:
        model = models[k]
        was_training = model.training
        model.eval()
        with torch.inference_mode():
            for start in range(0, len(targets), BATCH):
                index = torch.arange(start, min(start + BATCH, len(targets)))
                output = model(pipeline.batch(inputs, index).to(device))
                truth = targets[start : start + BATCH].to(device)
                right[k] += int((output.argmax(1) == truth).sum())
                loss[k] += float(functional.cross_entropy(output, truth, reduction="sum"))
        model.train(was_training)

    workers.run(one, len(models))
    return Scores((right.double() / max(1, len(targets))).tolist(), (loss / max(1, len(targets))).tolist())


def consensus_distance(x: Tensor) -> float:
    """(1/N) sum_i |x_i - xbar|^2: how far the nodes' models are apart."""
    mean = x.mean(0)
    return float(sum((row - mean).double().square().sum() for row in x) / len(x))


def spread(name: str, values: list[float]) -> dict[str, float]:
    """Mean, smallest and largest over the nodes, as figures of a row.

    >>> spread("loss", [1.0, 3.0])
    {'loss': 2.0, 'loss_min': 1.0, 'loss_max': 3.0}
    """
    return {name: sum(values) / len(values), f"{name}_min": min(values), f"{name}_max": max(values)}
