"""Recognise a model that is a chain of known layers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules

from gossamer.engine.node_models import Layout, Slot, hooked_parameter, is_misread

Pair = tuple[int, int]
Take = Callable[[str], Slot]
Step = tuple[str, tuple[Any, ...]]
"""The name of a layer, and what describes it:

    convolution   slot of the weights, stride, padding; the bias is a layer of its own
    linear        slot of the weights; the bias is a layer of its own
    bias          slot
    max_pool, mean_pool   windows
    group_norm    number of groups, eps, slots of gamma and beta (or None)
    global_mean, flatten, relu   nothing
"""


@dataclass(frozen=True)
class Windows:
    """Which pixels a pooling looks at."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)


@dataclass(frozen=True)
class ChainPlan:
    """The layers of a chain, whatever computes them."""

    steps: list[Step]
    takes_images: bool | None
    """None: vectors as well."""
    dtype: torch.dtype

    def fits(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether this batch can be taken: inputs [B, C, H, W] or [B, F], classes as int64 [B].

        Other batches can only be run by the module itself.
        """
        images = inputs.dim() == 4
        return (
            (images or inputs.dim() == 2)
            and self.takes_images in (None, images)
            and inputs.dtype == self.dtype
            and targets.dtype == torch.int64
            and targets.shape == inputs.shape[:1]
            and targets.numel() > 0
        )


class _UnknownError(Exception):
    """A part of the model that only autograd can run."""


def read(module: nn.Module, layout: Layout) -> ChainPlan | None:
    """The layers of a model that is a chain of known ones, else None.

    Known are nn.Sequential chains of Conv2d, Linear, ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), GroupNorm,
    Flatten and Identity in float32 or float64, whose parameters are all trained, used once, and free of hooks.

    >>> from gossamer.models import LeNet
    >>> model = LeNet((1, 28, 28), 10)
    >>> [name for name, _ in read(model, Layout(model)).steps[:5]]      # max pooling comes first
    ['convolution', 'max_pool', 'bias', 'relu', 'group_norm']
    >>> model.append(nn.Dropout())[-1]
    Dropout(p=0.5, inplace=False)
    >>> read(model, Layout(model)) is None
    True
    """
    if layout.dtype not in (torch.float32, torch.float64) or _all_have_hooks() or hooked_parameter(module):
        return None
    slots = {slot.name: slot for slot in layout}
    try:
        steps, takes_images = _steps(module, slots)
    except _UnknownError:
        return None
    return None if slots else ChainPlan(_pool_early(steps), takes_images, layout.dtype)


def _steps(module: nn.Module, slots: dict[str, Slot]) -> tuple[list[Step], bool | None]:
    """The steps, and whether they take images (None: vectors as well); what they use is taken out of `slots`."""
    steps: list[Step] = []
    takes_images = images = None
    for name, part in parts(module):
        needs = _NEEDS_IMAGES.get(type(part))
        if images is None:
            takes_images = images = needs
        _require(needs in (None, images))
        if type(part) is nn.Flatten:
            images = False

        def take(parameter: str, prefix: str = name) -> Slot:
            # A frozen parameter has no slot, and that of one that was used before is gone.
            _require(prefix + parameter in slots)
            return slots.pop(prefix + parameter)

        _require(type(part) in _READERS)
        steps += _READERS[type(part)](part, take)
    _require(images is False)
    return steps, takes_images


def parts(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested nn.Sequential, each with the prefix of its parameters' names."""
    _require(not _has_hooks(module) and "forward" not in vars(module))
    if type(module).forward is not nn.Sequential.forward:
        yield prefix, module
        return
    # A subclass may iterate in another order, or do more when it is called.
    kind: Any = type(module)
    _require(kind.__iter__ is nn.Sequential.__iter__ and kind.__call__ is nn.Module.__call__)
    # named_children() would leave out a layer's second appearance in the chain.
    for name, child in module._modules.items():
        if child is None:
            raise _UnknownError
        yield from parts(child, f"{prefix}{name}.")


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def _all_have_hooks() -> bool:
    """Whether a hook is called for every module of the process (`register_module_forward_hook`)."""
    return bool(all_modules._has_any_global_hook())  # type: ignore[no-untyped-call]


def _pool_early(steps: list[Step]) -> list[Step]:
    """Move max pooling before a bias and a ReLU, which commute with a maximum and then have less to do."""
    ordered: list[Step] = []
    for step in steps:
        place = len(ordered)
        while step[0] == "max_pool" and place and ordered[place - 1][0] in ("bias", "relu"):
            place -= 1
        ordered.insert(place, step)
    return ordered


def _convolution(part: nn.Conv2d, take: Take) -> list[Step]:
    _require(part.groups == 1 and pair(part.dilation) == (1, 1) and part.padding_mode == "zeros")
    _require(not is_misread(part))
    kernel = pair(part.kernel_size)
    if part.padding == "same":
        _require(all(size % 2 for size in kernel))
        padding = (kernel[0] // 2, kernel[1] // 2)
    else:
        padding = (0, 0) if isinstance(part.padding, str) else pair(part.padding)
    _require(padding[0] < kernel[0] and padding[1] < kernel[1])
    weight = take("weight")
    _require(weight.channels_last or weight.shape[1] == 1)
    return [("convolution", (weight, pair(part.stride), padding)), *_bias(part, take)]


def _linear(part: nn.Linear, take: Take) -> list[Step]:
    return [("linear", (take("weight"),)), *_bias(part, take)]


def _bias(part: nn.Conv2d | nn.Linear, take: Take) -> list[Step]:
    return [] if part.bias is None else [("bias", (take("bias"),))]


def _max_pool(part: nn.MaxPool2d, take: Take) -> list[Step]:
    _require(not part.ceil_mode and not part.return_indices)
    windows = Windows(pair(part.kernel_size), pair(part.stride), pair(part.padding), pair(part.dilation))
    return [("max_pool", (windows,))]


def _mean_pool(part: nn.AvgPool2d, take: Take) -> list[Step]:
    padding = pair(part.padding)
    _require(not part.ceil_mode and part.divisor_override is None)
    _require(part.count_include_pad or padding == (0, 0))
    return [("mean_pool", (Windows(pair(part.kernel_size), pair(part.stride), padding),))]


def _global_mean(part: nn.AdaptiveAvgPool2d, take: Take) -> list[Step]:
    _require(part.output_size in (1, (1, 1)))
    return [("global_mean", ())]


def _group_norm(part: nn.GroupNorm, take: Take) -> list[Step]:
    affine = (take("weight"), take("bias")) if part.affine else None
    return [("group_norm", (part.num_groups, part.eps, affine))]


def _flatten(part: nn.Flatten, take: Take) -> list[Step]:
    _require(part.start_dim == 1 and part.end_dim == -1)
    return [("flatten", ())]


def _relu(part: nn.ReLU, take: Take) -> list[Step]:
    return [("relu", ())]


def _identity(part: nn.Identity, take: Take) -> list[Step]:
    return []


def pair(value: Any) -> Pair:
    """Height and width, given as one number or as a tuple of one or two."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    _require(len(values) in (1, 2))
    return int(values[0]), int(values[-1])


def _require(known: bool) -> None:
    if not known:
        raise _UnknownError


# Only these very classes: a subclass (a parametrized layer is one, too) may compute something else.
_READERS: dict[type[nn.Module], Callable[..., list[Step]]] = {
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
