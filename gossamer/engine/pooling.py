"""Pool first, then rectify."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeGuard

from torch import nn

from gossamer.engine.hooks import all_are_watched, is_watched

_GIVES_A_NEW_TENSOR = {
    nn.Conv2d, nn.Linear, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.BatchNorm2d, nn.GroupNorm,
}  # fmt: skip
_MAY_HAND_ON_THE_SAME = {nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d}

Place = tuple[nn.Sequential, int]


def pool_before_relu(module: nn.Module) -> nn.Module:
    """Let a max pool change places with the ReLU right before it in a model that is one chain; returns the same module.

    max pool(relu(x)) = relu(max pool(x)), outputs and gradients alike to the bit, and the ReLU then has a fraction of
    the work. Neither has parameters, so the names in a `state_dict` stay; the child that was called "relu" is then the
    pool, and the one called "pool" the ReLU.

    A chain is an `nn.Sequential` of layers and of further chains. Any other module may take the layers of a chain
    inside of it one by one, so that one is left alone, as are layers with hooks: they would see the difference. So are
    layers before one that may work in place: a ReLU wants to find its output again, a max pool does not.
    """
    if not _is_chain(module) or all_are_watched():
        return module
    steps = list(_steps(module))
    layers = [layer for _, layer in steps]
    swaps: dict[Place, bool] = {}
    for k, ((place, relu), (_, pool)) in enumerate(pairwise(steps)):
        if type(relu) is nn.ReLU and type(pool) is nn.MaxPool2d and steps[k + 1][0] == (place[0], place[1] + 1):
            # A chain that appears twice is changed once, so it must be right both times.
            swaps[place] = swaps.get(place, True) and _may_swap(relu, pool, layers[k + 2 :])
    for (chain, k), good in swaps.items():
        if good:
            chain[k], chain[k + 1] = chain[k + 1], chain[k]
    return module


def _steps(chain: nn.Sequential) -> Iterator[tuple[Place, nn.Module]]:
    """The layers in the order in which they run, and where they are."""
    for k, child in enumerate(chain):
        if _is_chain(child):
            yield from _steps(child)
        else:
            yield (chain, k), child


def _is_chain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    return type(module).forward is nn.Sequential.forward and "forward" not in vars(module)


def _may_swap(relu: nn.ReLU, pool: nn.MaxPool2d, following: Sequence[nn.Module]) -> bool:
    return not (is_watched(relu) or is_watched(pool) or pool.return_indices) and _leave_alone(following)


def _leave_alone(layers: Sequence[nn.Module]) -> bool:
    """Whether what goes into these layers is surely the same afterwards."""
    for layer in layers:
        if getattr(layer, "inplace", False):
            return False
        if type(layer) not in _MAY_HAND_ON_THE_SAME:
            return type(layer) in _GIVES_A_NEW_TENSOR
    return True
