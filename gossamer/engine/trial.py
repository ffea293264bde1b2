"""One batch tried out before the first round: whether the model can take it, and whether it draws random numbers."""

import torch
from torch import Tensor, nn

from gossamer.engine.devices import generator_state, set_generator_state
from gossamer.errors import GossamerError, InputError


def draws_in_forward(module: nn.Module, batch: Tensor, classes: int) -> bool:
    """Whether the model's forward pass in training mode takes numbers from the global generator of its device.

    A model that cannot take the batch, or does not give a number for each of the classes, is refused.

    >>> draws_in_forward(nn.Linear(3, 2), torch.zeros(2, 3), classes=2)
    False
    >>> draws_in_forward(nn.Linear(4, 2), torch.zeros(2, 3), classes=2)
    Traceback (most recent call last):
    ...
    gossamer.errors.InputError: The model cannot take a batch [2, 3] of torch.float32: mat1 and mat2 shapes ...
    """
    kept = generator_state(batch.device)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            output = module(batch)
        drew = not torch.equal(kept, generator_state(batch.device))
    except Exception as error:
        raise InputError(
            f"The model cannot take a batch {list(batch.shape)} of {batch.dtype}: {_first_line(error)}"
        ) from error
    finally:
        set_generator_state(batch.device, kept)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    _refuse_output(output, len(batch), classes)
    return drew


def _refuse_output(output: object, samples: int, classes: int) -> None:
    if not isinstance(output, Tensor):
        raise InputError(
            f"The model must give a tensor with a number for each class, but it gives a {type(output).__name__}; "
            f"wrap it in a module that returns only the tensor."
        )
    if output.dim() != 2 or len(output) != samples or output.shape[1] < classes:
        raise InputError(
            f"The model gives an output {list(output.shape)} for {samples} samples, but there are {classes} classes; "
            f"let it give [{samples}, {classes}]."
        )


def refuse_single_samples(module: nn.Module, sample: Tensor, size: int, batch_size: int) -> None:
    """Refuse a model that needs several samples at once (BatchNorm of vectors), where a batch has only one.

    `sample` is a batch of one; `size` and `batch_size` are those that lead to it.
    """
    try:
        draws_in_forward(module, sample, classes=1)
    except GossamerError as error:
        raise InputError(
            f"The model cannot take a batch of one sample ({_first_line(error.__cause__ or error)}), but a node with "
            f"{size} samples comes to one with batches of {batch_size}; choose another batch size."
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
