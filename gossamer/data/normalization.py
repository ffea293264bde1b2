"""From stored pixels to what a model sees."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import InputError


@dataclass(frozen=True)
class Normalization:
    """x -> (x / 255 - mean) / std for uint8 images, (x - mean) / std for floating-point inputs.

    The default one leaves every other type than uint8 as it is, also integers such as the tokens of a text.
    `mean` and `std` are one number, or one per channel (dimension 1). Computed as x * scale + shift, which agrees with
    the formula to float32 rounding. uint8 becomes float32; floating-point inputs keep their type.

    >>> Normalization(mean=0.5, std=0.5)(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).round().tolist()
    [[[[-1.0, 1.0]]]]
    """

    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        means, stds = _as_tuple(self.mean), _as_tuple(self.std)
        if not all(map(math.isfinite, means)):
            raise InputError(f"A normalization's mean must be finite, not {self.mean}.")
        if not all(math.isfinite(s) and s > 0 for s in stds):
            raise InputError(f"A normalization divides by std, so it must be positive and finite, not {self.std}.")
        if len(means) != len(stds) and 1 not in (len(means), len(stds)):
            raise InputError(
                f"A normalization has {len(means)} means but {len(stds)} standard deviations: "
                "give one number or one per channel for each."
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        """The normalized inputs; the given tensor itself if there is nothing to do."""
        if inputs.dtype == torch.uint8:
            return self._affine(inputs.to(torch.float32), 255.0)
        if self == Normalization():
            return inputs
        if not inputs.is_floating_point():
            raise InputError(
                f"Inputs of type {inputs.dtype} cannot be normalized: use uint8 for pixels 0..255, a floating-point "
                "type for other measurements, or no normalization for numbers that only name something."
            )
        return self._affine(inputs.clone(), 1.0)

    def _affine(self, fresh: Tensor, white: float) -> Tensor:
        means, stds = _as_tuple(self.mean), _as_tuple(self.std)
        channels = max(len(means), len(stds))
        if channels == 1:
            fresh.mul_(1.0 / (white * stds[0]))
            return fresh.sub_(means[0] / stds[0]) if means[0] else fresh
        if fresh.dim() < 2 or fresh.shape[1] != channels:
            raise InputError(
                f"A normalization with {channels} channels cannot be applied to inputs of shape {tuple(fresh.shape)}, "
                "whose dimension 1 must be the channels."
            )
        per_channel = (channels,) + (1,) * (fresh.dim() - 2)
        mean = fresh.new_tensor(means).expand(channels).view(per_channel)
        std = fresh.new_tensor(stds).expand(channels).view(per_channel)
        return fresh.mul_(1.0 / (white * std)).sub_(mean / std)


def _as_tuple(value: float | tuple[float, ...]) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)
