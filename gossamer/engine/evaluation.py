"""How good the nodes' models are, and how far apart."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer._common.metrics import Scores
from gossamer.data import Pipeline
from gossamer.engine.chains import Chain
from gossamer.engine.devices import precise
from gossamer.engine.workers import Workers

BATCH = 500


def evaluate(
    models: Sequence[nn.Module],
    samples: tuple[Tensor, Tensor],
    pipeline: Pipeline,
    workers: Workers,
    device: torch.device,
) -> Scores | None:
    """Score every model on all samples, model by model on the workers, in evaluation mode; None without samples."""
    inputs, targets = samples
    if len(targets) == 0:
        return None
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
    return Scores((right.double() / len(targets)).tolist(), (loss / len(targets)).tolist())


def evaluate_chain(
    chain: Chain, rows: Sequence[Tensor], samples: tuple[Tensor, Tensor], pipeline: Pipeline, workers: Workers
) -> Scores | None:
    """`evaluate` for the models with these parameters, [G, d] each: equal to it up to rounding."""
    inputs, targets = samples
    if len(targets) == 0:
        return None
    at_once, batch = chain.arrangement.evaluation
    groups = [part for each in rows for part in torch.split(each, at_once)]
    parameters = [chain.views(own) for own in groups]
    starts = range(0, len(targets), batch)
    right = torch.zeros(len(groups), at_once, len(starts), dtype=torch.int64)
    loss = torch.zeros(len(groups), at_once, len(starts), dtype=torch.float64)

    def one(k: int) -> None:
        group, block = divmod(k, len(starts))
        own = groups[group]
        truth = targets[starts[block] : starts[block] + batch]
        x = pipeline.batch(inputs, torch.arange(starts[block], starts[block] + len(truth)))
        losses, hits = chain.scores(parameters[group], x.expand(len(own), *x.shape), truth.expand(len(own), -1))
        right[group, : len(own), block] = hits
        loss[group, : len(own), block] = losses.double() * len(truth)

    workers.run(one, len(groups) * len(starts))
    models = [(group, place) for group, own in enumerate(groups) for place in range(len(own))]
    total = len(targets)
    return Scores(
        [float(right[model].sum()) / total for model in models], [float(loss[model].sum()) / total for model in models]
    )


def consensus_distance(x: Tensor) -> float:
    """(1/N) sum_i |x_i - xbar|^2: how far the nodes' models are apart."""
    mean = x.mean(0)
    return float(sum(precise(row - mean).square().sum() for row in x) / len(x))
