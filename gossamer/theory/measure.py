"""How different the nodes are (zeta^2) and how noisy their gradients are (sigma^2), measured at a point."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data import NodeData
from gossamer.engine.node_models import ModelFactory, make_model
from gossamer.errors import InputError
from gossamer.problems.contract import Problem

BATCH = 500  # samples per forward pass; bounds the memory, not the result


def gradient_dissimilarity(model: ModelFactory | nn.Module, nodes: NodeData, seed: int = 0) -> float:
    """zeta^2 of Assumption 5 at a model: (1/N) sum_i |grad f_i - grad f|^2, with every node's full gradient.

    It is 0 for nodes with the same data. `nodes.partition.label_distance` compares the labels alone; this depends on
    the model as well: a module, which stays as it is, or a factory that `seed` initializes, as in `gossamer.simulate`.
    Samples are not augmented.

    >>> from gossamer import data, models
    >>> alike, apart = (data.load("digits").split(data.partition.k_class(4, k)) for k in (10, 3))
    >>> gradient_dissimilarity(models.SmallCNN, alike) < gradient_dissimilarity(models.SmallCNN, apart)
    True
    """
    module = make_model(model, nodes, seed).eval()
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    inputs, targets = nodes.dataset.train_inputs, nodes.dataset.train_targets
    gradients = torch.zeros(nodes.nodes, sum(weight.numel() for weight in weights))
    for own, total in zip(nodes.partition.indices, gradients, strict=True):
        for index in torch.split(own, BATCH):
            output = module(nodes.pipeline.batch(inputs, index))
            loss = functional.cross_entropy(output, targets[index], reduction="sum") / len(own)
            parts = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
            total += torch.cat([part.flatten() for part in parts])
    return float((gradients - gradients.mean(0)).double().square().sum(1).mean())


def heterogeneity(problem: Problem, x: Tensor) -> float:
    """zeta^2 of Assumption 5 at x [d]: (1/N) sum_i |grad f_i(x) - grad f(x)|^2, exactly.

    >>> from gossamer.problems import NonconvexCosine
    >>> problem = NonconvexCosine(nodes=8, zeta2=25.0)
    >>> round(heterogeneity(problem, problem.optimum()), 9)
    25.0
    """
    return problem.heterogeneity(_point(problem, x))


@torch.no_grad()
def noise(problem: Problem, x: Tensor, *, samples: int = 1000, seed: int = 0) -> float:
    """sigma^2 of Assumption 4 at x [d], estimated: the largest over the nodes of the mean of |g_i - grad f_i(x)|^2.

    The mean runs over `samples` stochastic gradients g_i; `problem.noise(x)` is the exact value.

    >>> from gossamer.problems import Quadratic
    >>> problem = Quadratic.synthetic(nodes=4, dim=3, sigma2=2.0)
    >>> 1.8 < noise(problem, problem.start(), samples=500) < 2.3
    True
    """
    if samples < 1:
        raise InputError(f"Measuring the noise needs at least one stochastic gradient, but samples is {samples}.")
    common = _point(problem, x).expand(problem.n, problem.dim)
    generator = torch.Generator().manual_seed(seed)
    full = problem.gradient(common)
    squares = torch.zeros(problem.n, dtype=torch.float64)
    for _ in range(samples):
        squares += (problem.stochastic_gradient(common, generator) - full).square().sum(1)
    return float(squares.max()) / samples


def _point(problem: Problem, x: Tensor) -> Tensor:
    if x.shape != (problem.dim,):
        raise InputError(
            f"The point must be one vector of {problem.dim} coordinates, common to all nodes, but its shape is "
            f"{tuple(x.shape)}."
        )
    return x.to(problem.dtype)
