"""Augmentation of whole batches, without per-sample Python.

Every random decision is a function of uniform numbers that were drawn beforehand, one row per sample:

    draws = pipeline.draw(len(index), generator)      # [B, k], from the node's own generator
    batch = pipeline.batch(images, index, draws)      # [B, C, H, W], float32

so the draws of many nodes can be stacked and their batches prepared in one go, with the same result.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer._common.checks import whole_number
from gossamer.data.erasing import Erasing
from gossamer.data.normalization import Normalization
from gossamer.errors import InputError


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
    """Cut a window of the images' own size at (top, left) out of each padded image, mirrored where told.

    A window is C * H runs of W neighbouring pixels. Seen through overlapping strides (1, 1), run number s of the
    padded batch is what starts at pixel s, and one `index_select` copies all runs; this was the fastest of seven forms
    measured. A mirrored window is cut at the mirrored place out of a mirrored copy.
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

    def draw(self, count: int, generator: torch.Generator) -> Tensor | None:
        """The random numbers of `count` training samples, or None if nothing is augmented."""
        return None if self.augmentation is None else self.augmentation.draw(count, generator)

    def batch(self, inputs: Tensor, index: Tensor, draws: Tensor | None = None) -> Tensor:
        """The samples `index` of `inputs`, ready for a model; augmented if draws are given."""
        samples = inputs.index_select(0, index)
        if self.augmentation is None or draws is None:
            return self.normalization(samples)
        draws = draws.to(inputs.device)
        normalized = self.normalization(self.augmentation.move(samples, draws))
        return self.augmentation.erase(normalized, draws)
