"""What may stand in a checkpoint: tensors, numbers, words and collections of them, which are read without running code.

torch writes any object, but refuses to read most of them back: a file must not hold one of these.
"""

import io
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.errors import InputError

_CERTAIN = (bool, float, str, bytes, type(None), Tensor, nn.Parameter)


def plain(value: Any, where: str = "") -> Any:
    """The value with NumPy's numbers as Python's; what could not be read back is refused, with the place it has.

    >>> plain({"lr": np.float64(0.1), "steps": [np.int64(3)]})
    {'lr': 0.1, 'steps': [3]}
    >>> plain({"extra": {"loader": {"seeds": np.arange(3)}}})
    Traceback (most recent call last):
    ...
    gossamer.errors.InputError: extra['loader']['seeds'] is a numpy.ndarray, which a checkpoint cannot hold: ...
    """
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if kind in _CERTAIN or (kind is int and value.bit_length() < 1024):
        return value
    if kind is list or kind is tuple:
        items = [plain(v, f"{where}[{k}]") for k, v in enumerate(value)]
        return value if _same(items, value) else kind(items)
    if kind is dict or kind is OrderedDict:
        keys = [plain(key, f"a key of {where}") for key in value]
        items = [plain(v, f"{where}[{k!r}]" if where else str(k)) for k, v in zip(keys, value.values(), strict=True)]
        if _same(keys, value) and _same(items, value.values()):
            return value
        made = kind(zip(keys, items, strict=True))
        if kind is OrderedDict:
            vars(made).update(vars(value))  # a model's state_dict carries the versions of its modules so
        return made
    _refuse_what_is_not_read_back(value, where)
    return value


def _same(made: list[Any], given: Any) -> bool:
    return all(a is b for a, b in zip(made, given, strict=True))


def _refuse_what_is_not_read_back(value: object, where: str) -> None:
    file = io.BytesIO()
    try:
        torch.save(value, file)
        torch.load(io.BytesIO(file.getvalue()), map_location="cpu", weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as error:
        kind = type(value)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        raise InputError(
            f"{where} is a {name}, which a checkpoint cannot hold: it could not be read back without running code; "
            f"save it as tensors, numbers, words, lists and dicts of them."
        ) from error
