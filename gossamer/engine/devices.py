"""The one place that decides where tensors live."""

import torch
from torch import Tensor

from gossamer.errors import InputError


def device_of(name: str | torch.device) -> torch.device:
    """The device called "cpu", "cuda", "cuda:1" or "mps"; a sentence if this machine does not have it."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"There is no device {name!r}; use cpu, cuda or mps.") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"Gossamer does not run on the device {name!r}; use cpu, cuda or mps.")
    if not _is_there(device):
        raise InputError(f"The device '{name}' was asked for, but torch finds none here; use device='cpu'.")
    return device


def _is_there(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    return device.type == "cpu" or torch.backends.mps.is_available()


_WITHOUT_FLOAT64 = {"mps"}


def precise(values: Tensor) -> Tensor:
    """The values in float64, for long sums, where the device has it."""
    return values if values.device.type in _WITHOUT_FLOAT64 else values.double()


def generator_state(device: torch.device) -> Tensor:
    """The state of the generator from which layers such as Dropout draw there: one for all models of the process."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.get_rng_state()


def set_generator_state(device: torch.device, state: Tensor) -> None:
    """Put back what `generator_state` gave."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
    else:
        torch.set_rng_state(state)
