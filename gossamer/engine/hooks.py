"""Hooks, which see what goes in and out of layers and parameters."""

from torch import nn
from torch.nn.modules import module as all_modules


def is_watched(layer: nn.Module) -> bool:
    """Whether anybody would notice that this layer does not run, or runs on something else: a hook of its own.

    >>> layer = nn.ReLU()
    >>> is_watched(layer)
    False
    >>> handle = layer.register_forward_hook(lambda *_: None)
    >>> is_watched(layer)
    True
    """
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def all_are_watched() -> bool:
    """Whether somebody watches every module of the process (`register_module_forward_hook` and the like)."""
    return bool(all_modules._has_any_global_hook())  # type: ignore[no-untyped-call]


def hooked_parameter(module: nn.Module) -> str | None:
    """The name of the first parameter with a hook (`register_hook`, `register_post_accumulate_grad_hook`), if any.

    >>> layer = nn.Linear(2, 2)
    >>> handle = layer.bias.register_hook(lambda gradient: 2 * gradient)
    >>> hooked_parameter(layer)
    'bias'
    """
    hooked = (name for name, p in module.named_parameters() if p._backward_hooks or p._post_accumulate_grad_hooks)
    return next(hooked, None)
