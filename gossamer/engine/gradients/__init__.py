"""Losses and gradients of the nodes' models, and their scores, behind one small interface.

The simulation asks one `Gradients` object and knows nothing of how it computes. There are two:

- `autograd`: any module, by torch;
- `compiled`: models that are chains of known layers (`recognition`), by compiled kernels, several times faster.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from gossamer.data import NodeData
from gossamer.engine.gradients.autograd import AutogradGradients
from gossamer.engine.gradients.recognition import read
from gossamer.engine.hardware import NodeGenerators, Workers
from gossamer.engine.history import Scores
from gossamer.engine.node_models import NodeModels
from gossamer.tasks import LOSSES, Task, task_of

__all__ = ["Gradients", "gradients_of"]

log = logging.getLogger("gossamer")


class Gradients(Protocol):
    """Computes the losses and gradients of nodes, and scores their models.

    Everything that this needs beside the nodes' parameters is its own: buffers, layouts, modules, the training data on
    the right device. A node is computed by one thread, and the bits do not depend on which one.
    """

    form: str
    """Names the computation. Two forms may round differently, so a change of bits needs another name."""

    def compute(
        self,
        indices: Sequence[Tensor],
        draws: Sequence[Tensor | None],
        clip: float | None,
        weight_decay: float,
        workers: Workers,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Overwrite the gradients of all nodes; returns losses, and the sums and norms of the gradients, [N] each.

        Node k trains on the samples `indices[k]`, augmented by the random numbers `draws[k]` that `Pipeline.draw` gave
        for them. The gradients are clipped, then weight decay is added; losses are not scaled by the loss weights, sums
        and norms are those before clipping. The workers share the nodes.
        """
        ...

    def among(self, models: NodeModels, nodes: Sequence[int], loss_weights: Tensor) -> "Gradients":
        """The same for some of the nodes, whose models these are."""
        ...

    def scores(self, samples: tuple[Tensor, Tensor], workers: Workers) -> Scores:
        """Score every node's model and, last, the averaged one.

        Kernels measure accuracy; the simulation asks them for nothing else.
        """
        ...


def gradients_of(
    models: NodeModels,
    data: NodeData,
    loss_weights: Tensor,
    generators: NodeGenerators | None,
    notify: Callable[[str], None] = log.info,
    task: Task | None = None,
) -> Gradients:
    """The fastest form that can compute these models. The kernels know classification by cross-entropy alone.

    `generators` are those of a model that draws random numbers in its forward pass. `notify` is told what takes long.
    The choice is made once: hooks that are put on the nodes' modules later are not seen by compiled kernels.
    """
    task = task or task_of()
    known = task.loss is LOSSES["cross-entropy"] and data.pipeline.dtype is None
    if known and models.x.device.type == "cpu" and (plan := read(models.modules[0], models.layout)):
        sample = data.pipeline.batch(data.dataset.train_inputs, torch.zeros(1, dtype=torch.int64))
        if plan.fits(sample, data.dataset.train_targets[:1]) and _kernels_can_run():
            from gossamer.engine.gradients.compiled import compiled_gradients

            compiled = compiled_gradients(plan, models, data, loss_weights, notify)
            if compiled is not None:
                return compiled
    return AutogradGradients(models, data, loss_weights, generators, task)


@cache
def _numba_is_installed() -> bool:
    if find_spec("numba") is not None:
        return True
    log.warning(
        "numba is not installed, so models run through autograd, several times slower: pip install 'gossamer[fast]'."
    )
    return False


def _kernels_can_run() -> bool:
    """Whether numba is here, and may compile (NUMBA_DISABLE_JIT=1 is its own switch)."""
    if not _numba_is_installed():
        return False
    try:
        import numba
    except ImportError as error:  # numba refuses a NumPy that it does not know
        log.warning("numba cannot be imported, so models run through autograd: %s.", error)
        return False
    return not numba.config.DISABLE_JIT
