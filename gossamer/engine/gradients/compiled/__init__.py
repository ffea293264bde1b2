"""Gradients of models that are chains of known layers, by kernels that numba compiles once for all chains.

Narrow networks are what is simulated most and what library kernels are worst at. Here the samples of a batch are the
lanes of a vector, so that a layer of six channels is as fast as one of sixty, and no time is lost between layers.
`recognition` reads the chain, `program` translates it, `machine` runs it.
"""

import copy
import logging
import math
import platform
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import llvmlite.binding
import numpy as np
import torch
from filelock import FileLock
from numba.core.errors import NumbaError
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data import NodeData, Pipeline
from gossamer.engine.gradients.compiled import machine
from gossamer.engine.gradients.compiled.compilation import cache_directory, sources
from gossamer.engine.gradients.compiled.program import Program, translate
from gossamer.engine.gradients.compiled.vectors import LANES
from gossamer.engine.gradients.recognition import ChainPlan, pair, parts
from gossamer.engine.hardware import Workers
from gossamer.engine.history import Scores
from gossamer.engine.node_models import Layout, NodeModels

VERSION = 2
"""Of what the kernels compute: it rises whenever results change by a bit."""

# Measured on LeNet, VGG-11 and perceptrons: torch is faster with weights, or activations, that do not fit in the cache.
MOST_PARAMETERS = 1_000_000
MOST_NUMBERS = 400_000
# So many samples are scored at once.
SCORED = 200

ChosenSamples = tuple[Tensor, Tensor, Sequence[Tensor] | Tensor, Tensor | None]
"""All inputs, all targets, every model's samples in them, and the random numbers [sum of samples, k] if any."""

_NO_MOVES, _NO_BOXES = np.zeros((0, 4), np.float32), np.zeros((0, 4), np.int64)
_NO_BYTES = np.zeros((0, 1, 1, 1), np.uint8)
_NONE = np.zeros(1, np.int64)
_compiled: set[np.dtype[Any]] = set()
"""The types of numbers for which the kernels are compiled in this process."""

log = logging.getLogger("gossamer")


class Chain:
    """The kernels applied to one chain, for samples of one shape. Each thread has a workspace of its own.

    The same batch gives the same bits whichever thread computes it, and whichever models are computed with it.
    """

    def __init__(self, plan: ChainPlan, shape: Sequence[int], pipeline: Pipeline) -> None:
        self.dtype = np.dtype(np.float32 if plan.dtype == torch.float32 else np.float64)
        self.program: Program = translate(plan.steps, tuple(shape), LANES[self.dtype])
        self.pipeline = pipeline
        self._own = threading.local()
        self._factors: dict[torch.dtype, tuple[Any, Any]] = {}
        self._nothing = np.zeros((0, 1, 1, 1), self.dtype)

    def gradients(
        self,
        x: Tensor,
        grad: Tensor,
        samples: ChosenSamples,
        weights: Tensor,
        clip: float | None = None,
        decay: float = 0.0,
        workers: Workers | None = None,
    ) -> Any:
        """Overwrite `grad` [G, d] with the gradients at `x` [G, d]; returns losses, sums and norms [G].

        `weights` [G] scale the losses for the gradients, which are then clipped; `decay` times the parameters is added
        last. Sums and norms are those of the gradients before clipping. The workers, if given, share the models.
        """
        limit = math.inf if clip is None else float(clip)
        found = self._run(x, grad, samples, weights.numpy(), True, limit, float(decay), workers)
        return found[:, 0], found[:, 2], found[:, 3]

    def scores(self, x: Tensor, samples: ChosenSamples) -> tuple[Any, Any]:
        """The mean losses and the numbers of right predictions of all models `x` on the same samples."""
        found = self._run(x, x, samples, np.zeros(len(x)), False, math.inf, 0.0, None)
        return found[:, 0], found[:, 1].astype(np.int64)

    def _run(
        self,
        x: Tensor,
        grad: Tensor,
        samples: ChosenSamples,
        weights: Any,
        train: bool,
        clip: float,
        decay: float,
        workers: Workers | None,
    ) -> Any:
        program, augmentation = self.program, self.pipeline.augmentation
        inputs, targets, indices, draws = samples
        if inputs.dtype not in self._factors:
            scale, shift = self.pipeline.normalization.factors(inputs, program.shape[0])
            self._factors[inputs.dtype] = (scale.numpy().astype(self.dtype), shift.numpy().astype(self.dtype))
        padding, flip, moves, boxes = 0, False, _NO_MOVES, _NO_BOXES
        if augmentation is not None and draws is not None:
            padding, flip = augmentation.padding, augmentation.flip
            if padding or flip:
                moves = draws.numpy()
            if augmentation.erasing:
                rectangles = augmentation.erasing.rectangles(draws[:, 3:], *program.shape[1:])
                boxes = torch.stack(rectangles, 1).to(torch.int64).numpy()
        stored = inputs.numpy().reshape(len(inputs), *program.shape)
        both = (stored, self._nothing) if inputs.dtype == torch.uint8 else (_NO_BYTES, stored)
        sizes = [index.numel() for index in indices]
        starts, largest = np.array([0, *accumulate(sizes)]), max(sizes)
        found, counters = np.empty((len(x), 4)), np.zeros(2, np.int64)
        arguments = (
            program.images, program.rows, program.sizes, x.numpy(), grad.numpy(), *both,
            torch.cat(tuple(indices)).numpy(), starts, moves, boxes, padding, flip,
            *self._factors[inputs.dtype], targets.numpy(), weights, train, clip, decay, counters,
        )  # fmt: skip

        def one(generation: Any = _NONE, seen: int = -1) -> None:
            machine.compute(*arguments, generation, seen, self._workspace(largest), found)

        if self.dtype not in _compiled:
            # The first call compiles: other processes wait for it and then take its kernels.
            with FileLock(cache_directory() / f"{sources()}.lock"):
                one()
            _compiled.add(self.dtype)
        else:
            if workers is not None:
                workers.assist(one, min(workers.number, len(x)) - 1)
            one()
        if found[:, 1].min() < 0:
            raise IndexError(f"The model has {program.classes} outputs, but the targets name other classes.")
        return found

    def _workspace(self, samples: int) -> Any:
        needed = self.program.workspace(samples)
        space = getattr(self._own, "space", None)
        if space is None or len(space) < needed:
            room = np.zeros(needed + 64, self.dtype)
            start = -room.ctypes.data % 64 // room.itemsize  # a vector does not cross the border of a cache line
            space = self._own.space = room[start : start + needed]
        return space


class CompiledGradients:
    """Every worker computes one node after the other, in one call for all."""

    def __init__(self, chain: Chain, models: NodeModels, data: NodeData, loss_weights: Tensor) -> None:
        self.form = form_of(chain.dtype)
        self._chain, self._models = chain, models
        self._loss_weights = loss_weights.double()
        self._inputs, self._targets = data.dataset.train_inputs.contiguous(), data.dataset.train_targets.contiguous()

    def among(self, models: NodeModels, nodes: Sequence[int], loss_weights: Tensor) -> "CompiledGradients":
        """The same chain, applied to other rows."""
        some = copy.copy(self)
        some._models, some._loss_weights = models, loss_weights.double()
        return some

    def compute(
        self,
        indices: Sequence[Tensor],
        draws: Sequence[Tensor | None],
        clip: float | None,
        weight_decay: float,
        workers: Workers,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All nodes."""
        given = [own for own in draws if own is not None]
        samples = self._inputs, self._targets, indices, torch.cat(given) if given else None
        found = self._chain.gradients(
            self._models.x, self._models.grad, samples, self._loss_weights, clip, weight_decay, workers
        )
        losses, sums, norms = map(torch.from_numpy, found)
        return losses, sums, norms

    def scores(self, samples: tuple[Tensor, Tensor], workers: Workers) -> Scores:
        """All models on a block of samples at a time, the blocks shared by the workers."""
        inputs, targets = samples[0].contiguous(), samples[1].contiguous()
        x = self._models.x
        average = x.mean(0, keepdim=True)
        starts = range(0, len(targets), SCORED)
        loss, right = np.zeros((len(x) + 1, len(starts))), np.zeros((len(x) + 1, len(starts)), np.int64)

        def one(k: int) -> None:
            index = torch.arange(starts[k], min(starts[k] + SCORED, len(targets)))
            for rows, models in ((slice(0, -1), x), (slice(-1, None), average)):
                losses, right[rows, k] = self._chain.scores(models, (inputs, targets, index[None], None))
                loss[rows, k] = losses * len(index)

        workers.run(one, len(starts))
        return Scores((right.sum(1) / len(targets)).tolist(), (loss.sum(1) / len(targets)).tolist())


def form_of(dtype: Any) -> str:
    """Names what decides the bits: the kernels' version and the number of lanes."""
    return f"compiled {VERSION}, {LANES[np.dtype(dtype)]} lanes"


def is_worthwhile(program: Program, parameters: int) -> bool:
    """Whether the kernels beat torch."""
    return parameters <= MOST_PARAMETERS and program.numbers <= MOST_NUMBERS


def compiled_gradients(
    plan: ChainPlan,
    models: NodeModels,
    data: NodeData,
    loss_weights: Tensor,
    notify: Callable[[str], None],
) -> CompiledGradients | None:
    """The kernels for these models; None where torch is faster, or where the kernels do not compute the same.

    `notify` is told if compiling them takes longer than a second.
    """
    inputs = data.dataset.train_inputs
    chain = Chain(plan, inputs.shape[1:], data.pipeline)
    if not is_worthwhile(chain.program, models.layout.dim) or not _has_fused_products():
        return None
    waiting = threading.Timer(1.0, notify, ["compiling kernels, once on this machine"])
    waiting.start()
    try:
        found = _disagreement(chain, models.modules[0], models.layout, inputs)
    except NumbaError as error:
        found = f"they cannot be compiled here: {str(error).splitlines()[0]}"
    finally:
        waiting.cancel()
    if found:
        log.warning("The model runs through autograd, not through the compiled kernels: %s.", found)
        return None
    return CompiledGradients(chain, models, data, loss_weights)


@cache
def _has_fused_products() -> bool:
    """Whether the processor multiplies and adds in one instruction; x86 before 2013 does not."""
    features = llvmlite.binding.get_host_cpu_features()
    return platform.machine().lower() not in ("x86_64", "amd64") or bool(features.get("fma"))


# The samples of the comparison are chosen from so many. More than 16 of them fill a block and begin another.
CANDIDATES, COMPARED = 64, 19
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}


def _disagreement(chain: Chain, model: nn.Module, layout: Layout, inputs: Tensor) -> str:
    """What the kernels compute differently from torch in float64 on one batch; empty if nothing.

    Weights and samples are drawn. Where a ReLU's input is almost 0, or two numbers under a maximum are almost equal,
    rounding decides which way the gradient goes. So of many samples those are compared whose decisions are clearest.
    """
    draw, pipeline = torch.Generator().manual_seed(0), chain.pipeline
    shape = (CANDIDATES, *inputs.shape[1:])
    if inputs.dtype == torch.uint8:
        drawn = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
    else:
        drawn = torch.randn(shape, dtype=inputs.dtype, generator=draw)
    row = torch.cat([torch.randn(s.size, generator=draw) / (s.size // s.shape[0]) ** 0.5 for s in layout.slots])
    row = row.to(layout.dtype)
    with torch.no_grad():
        clarity = _forward(model, layout, row.double(), pipeline.batch(drawn, torch.arange(CANDIDATES)).double())[1]
    index = clarity.argsort(descending=True)[:COMPARED]
    batch = pipeline.batch(drawn, index).double()
    exact = row.to(torch.float64, copy=True).requires_grad_()
    output = _forward(model, layout, exact, batch)[0]
    targets = torch.arange(COMPARED) % output.shape[1]
    loss = functional.cross_entropy(output, targets)
    (expected,) = torch.autograd.grad(loss, exact)

    samples = (drawn[index].contiguous(), targets, torch.arange(COMPARED)[None], None)
    grad = torch.full_like(row, float("nan"))
    losses, _, _ = chain.gradients(row[None], grad[None], samples, torch.ones(1, dtype=torch.float64))
    scored, right = chain.scores(row[None], samples)
    tolerance = TOLERANCE[layout.dtype]
    for slot in layout:
        want, have = slot.view(expected), slot.view(grad).double()
        if not (want - have).norm() <= tolerance * (want.norm() + 0.01 * expected.norm() + 1e-3):
            return f"their gradient of {slot.name} differs from torch's by {float((want - have).norm()):.2g}"
    known = int((output.argmax(1) == targets).sum())
    if not abs(losses[0] - loss.item()) <= tolerance * (1 + loss.item()) or scored[0] != losses[0] or right[0] != known:
        return f"their loss is {float(losses[0]):.6g}, torch's {loss.item():.6g}"
    return ""


def _forward(model: nn.Module, layout: Layout, row: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs for a batch with the parameters `row`, and how clear each sample's closest decision was."""
    own = {slot.name: slot.view(row) for slot in layout}
    clarity = torch.full((len(x),), float("inf"), dtype=torch.float64)
    for prefix, part in parts(model):
        margin = None
        if isinstance(part, nn.ReLU):
            margin = x.detach().abs()
        elif isinstance(part, nn.MaxPool2d):
            margin = _gap(part, x.detach())
        if margin is not None:
            # Equal numbers are zeros behind a ReLU, which pass no gradient on.
            margin = torch.where(margin > 0, margin, float("inf")).flatten(1).amin(1)
            clarity = clarity.minimum(margin / x.detach().square().mean().sqrt())
        parameters = {name: own[prefix + name] for name, _ in part.named_parameters()}
        # A ReLU in place would write into what autograd keeps.
        x = torch.relu(x) if isinstance(part, nn.ReLU) else torch.func.functional_call(part, parameters, (x,))
    return x, clarity


def _gap(pool: nn.MaxPool2d, x: Tensor) -> Tensor:
    """How far the maximum of every window is above the second largest number."""
    size, stride, padding, dilation = map(pair, (pool.kernel_size, pool.stride, pool.padding, pool.dilation))
    if size == (1, 1):
        return torch.ones(len(x), 1, dtype=x.dtype)
    x = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]), value=-1e30)
    windows = functional.unfold(x, size, dilation, 0, stride)
    first, second = windows.view(len(x), x.shape[1], size[0] * size[1], -1).topk(2, 2).values.unbind(2)
    return first - second
