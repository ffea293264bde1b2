"""How stored samples become batches: in which order every node takes them, and what is done to them on the way.

Augmentation works on whole batches, without per-sample Python. Every random decision is a function of uniform numbers
that were drawn beforehand, one row per sample:

    index = batches.next(node)                                        # [B], from the node's own shuffle
    draws = pipeline.draw(len(index), batches.generators[node])       # [B, k], from the node's own generator
    batch = pipeline.batch(images, index, draws)                      # [B, C, H, W], float32

so the draws of many nodes can be stacked and their batches prepared in one go, with the same result.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer._common.checks import whole_number
from gossamer.data.erasing import Erasing
from gossamer.errors import InputError


class NodeBatches:
    """Shuffled batches of sample indices, one independent stream per node.

    Rounds are synchronous: every node takes one batch per round.

    - All nodes hold equally many samples: an epoch is one pass over a node's own data, ceil(n / batch) rounds, the last
      one with the samples that are left.
    - Sizes differ: an epoch is ceil(mean n_i / batch) rounds, and every node cycles through its own shuffled data. A
      batch that reaches the end continues with a fresh shuffle, so all batches are full, except on a node that
      holds less than a batch: its batch is all it has, in every round.

    `generators[i]` is node i's only source of randomness; pass it to the augmentation too, and the state saved here
    covers both. Nodes share nothing, so different nodes may be served from different threads.

    >>> batches = NodeBatches([torch.arange(0, 5), torch.arange(5, 10)], batch_size=3, seed=0)
    >>> batches.rounds_per_epoch, [len(batches.next(0)) for _ in range(4)]
    (2, [3, 2, 3, 2])
    """

    def __init__(self, indices: Sequence[Tensor], batch_size: int, seed: int = 0) -> None:
        if whole_number(seed, "the seed", least=None) < 0:
            raise InputError(f"A seed is a number 0 or above, not {seed}.")
        empty = [node for node, own in enumerate(indices) if len(own) == 0]
        if empty or not indices:
            what = f"node {empty[0]} holds no samples" if empty else "there are no nodes"
            raise InputError(f"Batches cannot be drawn because {what}: choose a partition that leaves no node empty.")
        self.batch_size = batch_size
        self.sizes = [len(own) for own in indices]
        self.equal_sizes = len(set(self.sizes)) == 1
        self.rounds_per_epoch = rounds_per_epoch(self.sizes, batch_size)
        self.generators = [_generator(seed, node) for node in range(len(indices))]
        self._indices = [own.to(torch.int64) for own in indices]
        self._order = [self._shuffled(node) for node in range(len(indices))]
        self._position = [0] * len(indices)

    def next(self, node: int) -> Tensor:
        """The sample indices of the node's next batch (read only: it may be a view)."""
        size, start = self.sizes[node], self._position[node]
        if start == size:
            self._order[node], start = self._shuffled(node), 0
        if not self.equal_sizes and start + self.batch_size > size >= self.batch_size:
            rest, self._order[node] = self._order[node][start:], self._shuffled(node)
            self._position[node] = self.batch_size - len(rest)
            return torch.cat([rest, self._order[node][: self._position[node]]])
        self._position[node] = min(start + self.batch_size, size)
        return self._order[node][start : self._position[node]]

    def smallest(self, node: int) -> int:
        """The size of the node's smallest batch.

        >>> NodeBatches([torch.arange(0, 5), torch.arange(5, 10)], batch_size=3).smallest(0)
        2
        """
        size = self.sizes[node]
        left = size % self.batch_size if self.equal_sizes else 0
        return left or min(self.batch_size, size)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that decides the batches to come: generators [N, bytes], orders (concatenated), positions [N]."""
        return {
            "generators": torch.stack([generator.get_state() for generator in self.generators]),
            "orders": torch.cat(self._order),
            "positions": torch.tensor(self._position),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        self._refuse_foreign(state)
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved.clone())  # torch crashes on a view that does not start its storage
        self._order = list(state["orders"].clone().split(self.sizes))
        self._position = state["positions"].tolist()

    def _shuffled(self, node: int) -> Tensor:
        return self._indices[node][torch.randperm(self.sizes[node], generator=self.generators[node])]

    def _refuse_foreign(self, state: Mapping[str, Any]) -> None:
        nodes = len(self.sizes)
        ours = {
            "generators": (nodes, len(self.generators[0].get_state())),
            "orders": (sum(self.sizes),),
            "positions": (nodes,),
        }
        theirs = {name: tuple(state[name].shape) if name in state else None for name in ours}
        same = theirs == ours and all(
            0 <= position <= len(own) and torch.equal(own.sort().values, saved.sort().values)
            for own, saved, position in zip(
                self._indices, state["orders"].split(self.sizes), state["positions"].tolist(), strict=True
            )
        )
        if not same:
            raise InputError(
                "The saved batch order belongs to another partition of the data: resume with the dataset, the "
                "partition and its seed that the run was started with."
            )


def rounds_per_epoch(sizes: Sequence[int], batch_size: int) -> int:
    """ceil(mean number of samples of a node / batch size)."""
    if whole_number(batch_size, "the batch size", least=None) < 1:
        raise InputError(f"A batch holds at least one sample, not {batch_size}.")
    return -(-sum(sizes) // (len(sizes) * batch_size))


def _generator(seed: int, node: int) -> torch.Generator:
    """An independent generator for every (seed, node)."""
    mixed = np.random.SeedSequence([seed, node]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))


@dataclass(frozen=True)
class Normalization:
    """x -> (x / 255 - mean) / std for uint8 images, (x - mean) / std for floating-point inputs.

    The default leaves every type but uint8 unchanged, integers such as the tokens of a text included.
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
        if self == Normalization() and inputs.dtype != torch.uint8:
            return inputs
        if not inputs.is_floating_point() and inputs.dtype != torch.uint8:
            raise InputError(
                f"Inputs of type {inputs.dtype} cannot be normalized: use uint8 for pixels 0..255, a floating-point "
                "type for other measurements, or no normalization for numbers that are only names."
            )
        channels = max(len(_as_tuple(self.mean)), len(_as_tuple(self.std)))
        if channels > 1 and (inputs.dim() < 2 or inputs.shape[1] != channels):
            raise InputError(
                f"A normalization with {channels} channels cannot be applied to inputs of shape {tuple(inputs.shape)}, "
                "whose dimension 1 must be the channels."
            )
        scale, shift = self.factors(inputs, channels)
        if channels > 1:
            per_channel = (channels,) + (1,) * (inputs.dim() - 2)
            scale, shift = scale.view(per_channel), shift.view(per_channel)
        fresh = inputs.to(scale.dtype, copy=True).mul_(scale)
        return fresh.sub_(shift) if any(_as_tuple(self.mean)) else fresh

    def factors(self, inputs: Tensor, channels: int) -> tuple[Tensor, Tensor]:
        """(scale, shift), each [channels], so that the normalized inputs are x * scale - shift."""
        white, dtype = (255.0, torch.float32) if inputs.dtype == torch.uint8 else (1.0, inputs.dtype)
        means, stds = _as_tuple(self.mean), _as_tuple(self.std)
        if len(means) == len(stds) == 1:
            pair = (1.0 / (white * stds[0]), means[0] / stds[0])
            scale, shift = (torch.tensor([value], dtype=dtype, device=inputs.device) for value in pair)
        else:
            mean, std = (torch.tensor(values, dtype=dtype, device=inputs.device) for values in (means, stds))
            scale, shift = 1.0 / (white * std), mean / std
        return scale.expand(channels), shift.expand(channels)


def _as_tuple(value: float | tuple[float, ...]) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True)
class Augmentation:
    """Random crop with zero padding, then horizontal flip on the stored pixels; random erasing after normalization.

    `padding`: each image is padded with that many zeros (black) on every side and a window of its own size is cut out
    at a row and a column offset, each uniform in 0..2*padding (`padding` is the image unmoved).
    `flip`: mirror left to right with probability 1/2.
    `erasing`: an `Erasing`, or None.

    >>> Augmentation(padding=4, flip=True)      # CIFAR-10
    Augmentation(padding=4, flip=True, erasing=None)
    """

    padding: int = 0
    flip: bool = False
    erasing: Erasing | None = None

    def __post_init__(self) -> None:
        if whole_number(self.padding, "the padding of an augmentation", least=None) < 0:
            raise InputError(f"An augmentation pads with 0 or more pixels, not {self.padding}.")

    @property
    def draws(self) -> int:
        """Uniform numbers needed per sample: row and column offset, flip, and those of the erasing."""
        return 3 + (Erasing.draws if self.erasing else 0)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform numbers [count, draws] in [0, 1) for `count` samples."""
        return torch.rand(count, self.draws, generator=generator, device=generator.device)

    def move(self, images: Tensor, draws: Tensor) -> Tensor:
        """Crop and flip a batch [B, C, H, W] of any type."""
        if not self.padding and not self.flip:
            return images
        if images.dim() != 4:
            raise InputError(
                "Cropping and flipping need images of shape [batch, channels, height, width], not "
                f"{list(images.shape)}: train on these inputs without augmentation."
            )
        # u < 1 is a multiple of 2^-24, so u * m rounds to less than m and the floor is uniform over 0..m-1.
        offsets = (draws[:, :2] * (2 * self.padding + 1)).to(torch.int64)
        mirrored = draws[:, 2] < 0.5 if self.flip else None
        return _windows(images, self.padding, offsets[:, 0], offsets[:, 1], mirrored)

    def erase(self, images: Tensor, draws: Tensor) -> Tensor:
        """Erase in place in a normalized batch."""
        return self.erasing(images, draws[:, 3:]) if self.erasing else images


def _windows(images: Tensor, padding: int, top: Tensor, left: Tensor, mirrored: Tensor | None) -> Tensor:
    """Cut a window of the images' size at (top, left) out of each padded image, mirrored where `mirrored` is true.

    A window is C * H runs of W neighbouring pixels. Seen through overlapping strides (1, 1), run number s of the
    padded batch is what starts at pixel s, and one `index_select` copies all runs; this was the fastest of seven forms
    measured. A mirrored window is cut out of a mirrored copy, at the mirrored position.
    """
    batch, channels, height, width = images.shape
    tall, wide = height + 2 * padding, width + 2 * padding
    copies = 1 if mirrored is None else 2
    padded = images.new_zeros(copies, batch, channels, tall, wide)
    padded[0, :, :, padding : padding + height, padding : padding + width] = images
    sample = torch.arange(batch, device=images.device)
    if mirrored is not None:
        padded[1, :, :, padding : padding + height, padding : padding + width] = images.flip(3)
        sample = sample + batch * mirrored
        left = torch.where(mirrored, 2 * padding - left, left)

    corner = sample * (channels * tall * wide) + top * wide + left
    channel = torch.arange(channels, device=images.device) * (tall * wide)
    row = torch.arange(height, device=images.device) * wide
    starts = corner[:, None, None] + channel[:, None] + row
    runs = padded.as_strided((padded.numel() - width + 1, width), (1, 1))
    return runs.index_select(0, starts.flatten()).view(batch, channels, height, width)


@dataclass(frozen=True)
class Pipeline:
    """How stored samples become a batch: fetch, crop, flip, normalize, erase, in this order.

    >>> pipeline = Pipeline(Normalization(0.5, 0.5), Augmentation(padding=4, flip=True))
    >>> images = torch.zeros(10, 3, 32, 32, dtype=torch.uint8)
    >>> index, generator = torch.tensor([3, 1]), torch.Generator().manual_seed(0)
    >>> pipeline.batch(images, index, pipeline.draw(2, generator)).shape      # training
    torch.Size([2, 3, 32, 32])
    >>> pipeline.batch(images, index).shape                                   # evaluation: nothing is random
    torch.Size([2, 3, 32, 32])
    """

    normalization: Normalization = field(default_factory=Normalization)
    augmentation: Augmentation | None = None
    dtype: torch.dtype | None = None
    """The type of batches of pixels, where it is not float32."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor | None:
        """The random numbers of `count` training samples, or None if nothing is augmented."""
        return None if self.augmentation is None else self.augmentation.draw(count, generator)

    def batch(self, inputs: Tensor, index: Tensor, draws: Tensor | None = None) -> Tensor:
        """The samples `index` of `inputs`, ready for a model; augmented if draws are given."""
        samples = inputs.index_select(0, index)
        if self.augmentation is None or draws is None:
            return self.normalization(samples).to(self.dtype) if self.dtype else self.normalization(samples)
        draws = draws.to(inputs.device)
        normalized = self.normalization(self.augmentation.move(samples, draws))
        erased = self.augmentation.erase(normalized, draws)
        return erased.to(self.dtype) if self.dtype else erased
