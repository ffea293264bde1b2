"""Pool first, then rectify."""

from itertools import pairwise

from torch import nn


def pool_before_relu(module: nn.Module) -> nn.Module:
    """In every `nn.Sequential`, let a max pool change places with the ReLU right before it; returns the same module.

    max pool(relu(x)) = relu(max pool(x)), outputs and gradients alike to the bit, and the ReLU then has a fraction of
    the work. Neither has parameters, so the names in a `state_dict` stay; the child that was called "relu" is then the
    pool, and the one called "pool" the ReLU. Layers with hooks, which would see the difference, are left alone.
    """
    for chain in module.modules():
        if not isinstance(chain, nn.Sequential) or type(chain).forward is not nn.Sequential.forward:
            continue
        for k, (relu, pool) in enumerate(pairwise(list(chain))):
            if type(relu) is nn.ReLU and type(pool) is nn.MaxPool2d and not (_watched(relu) or _watched(pool)):
                chain[k], chain[k + 1] = pool, relu
    return module


def _watched(layer: nn.Module) -> bool:
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or getattr(layer, "return_indices", False)
