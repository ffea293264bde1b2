"""Recognise a model that a group of nodes can run together."""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from gossamer.engine.flat import Layout, Slot
from gossamer.engine.hooks import all_are_watched, hooked_parameter, is_watched
from gossamer.engine.together.chain import Together
from gossamer.engine.together.convolution import Convolution
from gossamer.engine.together.layers import Bias, Flatten, Layer, Linear, ReLU
from gossamer.engine.together.normalization import GroupNorm
from gossamer.engine.together.pooling import GlobalMean, MaxPool, MeanPool, Windows

Pair = tuple[int, int]
Take = Callable[[str], Slot]


class _UnknownError(Exception):
    """Something that only the model itself can run."""


def build(module: nn.Module, layout: Layout) -> Together | None:
    """The model's form for groups of nodes, or None where the nodes must run one by one.

    Known are nn.Sequential chains of Conv2d, Linear, ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), GroupNorm,
    Flatten and Identity in float32 or float64, whose parameters are all trained, used once, and free of hooks.

    >>> from gossamer.models import LeNet
    >>> model = LeNet((1, 28, 28), 10)
    >>> form = build(model, Layout(model))
    >>> form.fits(torch.zeros(4, 16, 1, 28, 28), torch.zeros(4, 16, dtype=torch.int64))
    True
    >>> model.append(nn.Dropout())[-1]
    Dropout(p=0.5, inplace=False)
    >>> build(model, Layout(model)) is None
    True
    """
    if layout.dtype not in (torch.float32, torch.float64) or all_are_watched() or hooked_parameter(module):
        return None
    slots = {slot.name: slot for slot in layout}
    try:
        layers, takes_images = _read(module, slots)
    except _UnknownError:
        return None
    return None if slots else Together(_pool_early(layers), takes_images, layout.dtype)


def _read(module: nn.Module, slots: dict[str, Slot]) -> tuple[list[Layer], bool | None]:
    """The layers, and whether they take images (None: vectors as well); what they use is taken out of `slots`."""
    layers: list[Layer] = []
    takes_images = images = None
    for name, part in _parts(module, ""):
        needs = _NEEDS_IMAGES.get(type(part))
        if images is None:
            takes_images = images = needs
        _require(needs in (None, images))
        if type(part) is nn.Flatten:
            images = False

        def take(parameter: str, prefix: str = name) -> Slot:
            # A frozen parameter has no slot, and one that was used before has it no more.
            _require(prefix + parameter in slots)
            return slots.pop(prefix + parameter)

        _require(type(part) in _READERS)
        layers += _READERS[type(part)](part, take)
    _require(images is False)
    return layers, takes_images


def _parts(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested nn.Sequential, each with the prefix of its parameters' names."""
    _require(not is_watched(module) and "forward" not in vars(module))
    if type(module).forward is not nn.Sequential.forward:
        yield prefix, module
        return
    # named_children() would leave out a layer's second appearance in the chain.
    for name, child in module._modules.items():
        if child is None:
            raise _UnknownError
        yield from _parts(child, f"{prefix}{name}.")


def _pool_early(layers: list[Layer]) -> list[Layer]:
    """Move max pooling before a bias and a ReLU, which commute with a maximum and then have less to do."""
    ordered: list[Layer] = []
    for layer in layers:
        place = len(ordered)
        while isinstance(layer, MaxPool) and place and isinstance(ordered[place - 1], Bias | ReLU):
            place -= 1
        ordered.insert(place, layer)
    return ordered


def _convolution(part: nn.Conv2d, take: Take) -> list[Layer]:
    _require(part.groups == 1 and _pair(part.dilation) == (1, 1) and part.padding_mode == "zeros")
    kernel = _pair(part.kernel_size)
    if part.padding == "same":
        _require(all(size % 2 for size in kernel))
        padding = (kernel[0] // 2, kernel[1] // 2)
    else:
        padding = (0, 0) if isinstance(part.padding, str) else _pair(part.padding)
    _require(padding[0] < kernel[0] and padding[1] < kernel[1])
    weight = take("weight")
    _require(weight.channels_last or weight.shape[1] == 1)
    return [Convolution(weight, _pair(part.stride), padding), *_bias(part, take)]


def _linear(part: nn.Linear, take: Take) -> list[Layer]:
    return [Linear(take("weight")), *_bias(part, take)]


def _bias(part: nn.Conv2d | nn.Linear, take: Take) -> list[Layer]:
    return [] if part.bias is None else [Bias(take("bias"))]


def _max_pool(part: nn.MaxPool2d, take: Take) -> list[Layer]:
    _require(not part.ceil_mode and not part.return_indices)
    return [MaxPool(Windows(_pair(part.kernel_size), _pair(part.stride), _pair(part.padding), _pair(part.dilation)))]


def _mean_pool(part: nn.AvgPool2d, take: Take) -> list[Layer]:
    padding = _pair(part.padding)
    _require(not part.ceil_mode and part.divisor_override is None)
    _require(part.count_include_pad or padding == (0, 0))
    return [MeanPool(Windows(_pair(part.kernel_size), _pair(part.stride), padding))]


def _global_mean(part: nn.AdaptiveAvgPool2d, take: Take) -> list[Layer]:
    _require(part.output_size in (1, (1, 1)))
    return [GlobalMean()]


def _group_norm(part: nn.GroupNorm, take: Take) -> list[Layer]:
    affine = (take("weight"), take("bias")) if part.affine else None
    return [GroupNorm(part.num_groups, part.eps, affine)]


def _flatten(part: nn.Flatten, take: Take) -> list[Layer]:
    _require(part.start_dim == 1 and part.end_dim == -1)
    return [Flatten()]


def _relu(part: nn.ReLU, take: Take) -> list[Layer]:
    return [ReLU()]


def _identity(part: nn.Identity, take: Take) -> list[Layer]:
    return []


def _pair(value: int | tuple[int, ...]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _require(known: bool) -> None:
    if not known:
        raise _UnknownError


# Only these very classes: a subclass (a parametrized layer is one, too) may compute something else.
_READERS: dict[type[nn.Module], Callable[..., list[Layer]]] = {
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.ReLU: _relu,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _mean_pool,
    nn.AdaptiveAvgPool2d: _global_mean,
    nn.GroupNorm: _group_norm,
    nn.Flatten: _flatten,
    nn.Identity: _identity,
}

_NEEDS_IMAGES = {
    nn.Conv2d: True,
    nn.MaxPool2d: True,
    nn.AvgPool2d: True,
    nn.AdaptiveAvgPool2d: True,
    nn.Linear: False,
}
