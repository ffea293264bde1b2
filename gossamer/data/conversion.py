"""From what people have (arrays, frames, lists, datasets that give one sample at a time) to tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.errors import InputError


def stacked(items: Any, columns: Sequence[str], what: str) -> tuple[Any, Any]:
    """All inputs and all targets of samples that come one by one: pairs, or mappings of which `columns` names two."""
    pairs: list[Sequence[Any]] = []
    # Not by iteration: a map-style dataset of torch without __iter__ would never end.
    sized = hasattr(items, "__getitem__") and hasattr(items, "__len__")
    for item in (items[k] for k in range(len(items))) if sized else items:
        if isinstance(item, Mapping):
            missing = [c for c in columns if c not in item]
            if len(columns) != 2 or missing:
                raise InputError(
                    f"The {what} are mappings with {', '.join(map(str, item))}; name the input and the target of them "
                    f"as in columns=('image', 'label'), not {tuple(columns)!r}."
                )
            item = [item[c] for c in columns]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(f"The {what} must be pairs (input, target), not {briefly(item)}.")
        pairs.append(item)
    if not pairs:
        raise InputError(f"There are no {what}; give at least one.")
    inputs, targets = (_stack(column, what) for column in zip(*pairs, strict=True))
    return inputs, targets


def _stack(values: Sequence[Any], what: str) -> Any:
    if isinstance(values[0], bool | int | float):
        return torch.tensor(values)
    try:
        # Through NumPy: pictures of PIL become arrays.
        return torch.stack([v if isinstance(v, Tensor) else torch.tensor(np.asarray(v)) for v in values])
    except (TypeError, ValueError, RuntimeError) as error:
        _refuse_text(values, what)
        raise InputError(
            f"The {what} cannot be stacked ({str(error).splitlines()[0]}); let all have one shape and type."
        ) from error


def briefly(value: object) -> str:
    """Text and classes as they are, anything else by its type: it may be large."""
    return repr(value) if isinstance(value, str | type) else f"an object of type {type(value).__name__}"


def form(inputs: Tensor) -> str:
    """The shape and type of one sample."""
    return f"{'x'.join(map(str, inputs.shape[1:])) or 'one number'} ({inputs.dtype})"


def as_tensor(values: Any, what: str) -> Tensor:
    """Arrays, frames and lists as a tensor; `what` they are is for the error."""
    if isinstance(values, Tensor):
        return values.detach()
    try:
        # pandas has to_numpy, and some of its arrays cannot be written, which torch wants to be able to.
        return torch.tensor(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except (TypeError, ValueError, RuntimeError) as error:
        _refuse_text(values, what)
        raise InputError(f"The {what} cannot be made a tensor ({error}); give a tensor or an array.") from error


def _refuse_text(values: Any, what: str) -> None:
    """Refuse text among values that torch could not convert."""
    text = _first_text(values)
    if text is not None:
        raise InputError(
            f"The {what} cannot be made a tensor, because they hold text such as {text[:40]!r}; make categories "
            f"numbers first, as in column.astype('category').cat.codes."
        )


def _first_text(values: Any) -> str | None:
    if isinstance(values, str):
        return values
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    if isinstance(array, np.ndarray):
        array = array.flatten().tolist() if array.dtype.kind in "OU" else []
    if not isinstance(array, list | tuple):
        return None
    return next((text for value in array if (text := _first_text(value)) is not None), None)


def as_inputs(values: Any, what: str) -> Tensor:
    """The same for inputs, which must be finite."""
    inputs = as_tensor(values, what)
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise InputError(f"The {what} contain NaN or infinite values, which no training recovers from; remove them.")
    return inputs


def as_targets(values: Any, what: str) -> Tensor:
    """The same for targets: int64 for classes, floating point for anything else."""
    targets = as_tensor(values, what)
    if targets.is_complex() or targets.dim() == 0:
        raise InputError(
            f"The {what} must be class numbers or real numbers, [n, ...]; these are {targets.dtype} "
            f"{list(targets.shape)}."
        )
    if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
        raise InputError(f"The {what} contain NaN or infinite values, which nothing can be fitted to; remove them.")
    if targets.dtype == torch.bool:
        return targets.float()
    return targets if targets.is_floating_point() and targets.numel() else targets.long()


def as_groups(values: Any) -> Tensor:
    """The same for the numbers of groups."""
    groups = as_tensor(values, "groups")
    if groups.is_floating_point() or groups.is_complex() or groups.dim() != 1 or (len(groups) and groups.min() < 0):
        raise InputError(
            f"groups must be whole numbers 0, 1, 2, ..., one per sample; these are {groups.dtype} "
            f"{list(groups.shape)}: number the groups first."
        )
    return groups.long()
