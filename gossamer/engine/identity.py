"""What makes a run this one and no other: its checkpoint is continued only where all of it is the same."""

import hashlib
import re
from array import array
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.engine.node_models import NodeModels
from gossamer.engine.pace import Pace
from gossamer.engine.simulation import Simulation
from gossamer.engine.step_sizes import Lr


def identity_of(simulation: Simulation, lr: Lr, pace: Pace) -> dict[str, Any]:
    """Plain words and numbers that must be equal for a checkpoint to be this run's.

    The simulation has not begun: its models are those that the run starts from.
    """
    settings, models, data = simulation.settings, simulation.models, simulation.data
    layout = hashlib.sha256(repr(models.layout.slots).encode()).hexdigest()[:16]
    # A schedule is stretched over the run; with a constant step size a longer run continues a shorter one.
    constant = isinstance(lr, int | float)
    return {
        "dataset": data.dataset.name,
        "partition": data.partition.recipe,
        "model": f"{type(models.modules[0]).__name__} {layout}",
        "method": repr(simulation.method),
        "graph": f"{simulation.topology.name} {simulation.topology.fingerprint[:16]}",
        "lr": "function" if callable(lr) else repr(lr),
        "rounds": "any" if constant else pace.total,
        "step_sizes": "constant" if constant else _step_sizes(pace),
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "weight_decay": settings.weight_decay,
        "clip": settings.clip,
        "node_weight": settings.node_weight,
        "data": data.dataset.fingerprint[:16],
        "layers": _layers(models.modules[0]),
        "start": _start(models),
    }


def _layers(module: nn.Module) -> str:
    """A digest of what the layers say of themselves: kinds, strides, rates. Where an object lies says nothing."""
    said = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))
    return f"layers {hashlib.sha256(said.encode()).hexdigest()[:16]}"


def _start(models: NodeModels) -> str:
    """A digest of the weights that all nodes start from, of frozen parameters and of buffers."""
    module = models.modules[0]
    frozen = [(name, value) for name, value in module.named_parameters() if not value.requires_grad]
    digest = hashlib.sha256(_bytes(models.x[0]))
    for name, value in [*frozen, *module.named_buffers()]:
        digest.update(f" {name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(_bytes(value))
    return f"weights {digest.hexdigest()[:16]}"


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _step_sizes(pace: Pace) -> str:
    """The first and the last step size, and a digest of all: two functions are the same if they say the same."""
    values = array("d", map(pace.step_size, range(pace.total)))
    return f"{values[0]:g} to {values[-1]:g}, {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"
