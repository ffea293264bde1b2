"""Pool first, then rectify."""

from itertools import pairwise
from typing import TypeGuard

from torch import nn


def pool_before_relu(module: nn.Module) -> nn.Module:
    """Let a max pool change places with the ReLU right before it in a model that is one chain; returns the same module.

    max pool(relu(x)) = relu(max pool(x)), outputs and gradients alike to the bit, and the ReLU then has a fraction of
    the work. Neither has parameters, so the names in a `state_dict` stay; the child that was called "relu" is then the
    pool, and the one called "pool" the ReLU.

    A chain is an `nn.Sequential` of layers and of further chains. Any other module may take the layers of a chain
    inside of it one by one, so that one is left alone, as are layers with hooks: they would see the difference.
    """
    if _is_chain(module):
        for child in module.children():
            pool_before_relu(child)
        for k, (relu, pool) in enumerate(pairwise(list(module))):
            if type(relu) is nn.ReLU and type(pool) is nn.MaxPool2d and not (_watched(relu) or _watched(pool)):
                module[k], module[k + 1] = pool, relu
    return module


def _is_chain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    return type(module).forward is nn.Sequential.forward and "forward" not in vars(module)


def _watched(layer: nn.Module) -> bool:
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or getattr(layer, "return_indices", False)
