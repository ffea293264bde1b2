"""The model that all nodes start from."""

import copy
import inspect
from collections.abc import Callable

import torch
from torch import nn

from gossamer._common.checks import whole_number
from gossamer._common.threads import one_thread
from gossamer.data import NodeData
from gossamer.engine.hooks import hooked_parameter
from gossamer.errors import InputError

ModelFactory = Callable[..., nn.Module]
MOST_SEEDS = 2**62


def make_model(model: ModelFactory | nn.Module, data: NodeData, seed: int) -> nn.Module:
    """The model all nodes start from.

    A factory is called with (shape, classes) if it needs two arguments, else with none, and its random numbers come
    from `seed` without disturbing torch's global generator. The module that is given, or that the factory gives, is
    copied: it may be in use elsewhere.
    """
    if whole_number(seed, "the seed", least=None) >= MOST_SEEDS:
        raise InputError(f"The seed must be below 2^62, but it is {seed}.")
    if isinstance(model, nn.Module):
        return _copied(model)
    if not callable(model):
        raise InputError(f"The model must be an nn.Module or a function that makes one, not {model!r}.")
    needed = [
        p
        for p in inspect.signature(model).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) not in (0, 2):
        raise InputError(
            f"The model must be a function without arguments or one of (shape, classes), but it needs "
            f"{', '.join(p.name for p in needed)}; wrap it: lambda: MyModel(...)."
        )
    with torch.random.fork_rng(devices=[]), one_thread():  # nn.init.orthogonal_ gives other bits with two
        torch.manual_seed(seed)
        made = model(data.dataset.sample_shape, data.dataset.num_classes) if needed else model()
    if not isinstance(made, nn.Module):
        raise InputError(f"The model factory returned {type(made).__name__}, not an nn.Module.")
    return _copied(made)


def _copied(model: nn.Module) -> nn.Module:
    name = hooked_parameter(model)
    if name is not None:
        raise InputError(
            f"The model's parameter '{name}' has a hook, which is not copied with it, so the nodes would train without "
            f"it; do the same in the model's forward, or in a hook on the module (register_full_backward_hook)."
        )
    return copy.deepcopy(model)
