"""Random erasing on a whole batch at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._common.checks import is_finite_number
from gossamer.errors import InputError

ATTEMPTS = 10


@dataclass(frozen=True)
class Erasing:
    """With probability `p`, set a random rectangle of the image to 0 (after normalization).

    The rectangle covers a share of the image uniform in `scale`, with height / width log-uniform in `ratio`. One that
    does not fit strictly inside the image is drawn again, at most ten times, after which the image stays as it is;
    one that fits is placed uniformly. These are torchvision's `RandomErasing` and its defaults.

    >>> Erasing(p=0.25)
    Erasing(p=0.25, scale=(0.02, 0.33), ratio=(0.3, 3.3))
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)

    draws = 3 + 2 * ATTEMPTS  # whether, row, column, and (share, ratio) of each attempt

    def __post_init__(self) -> None:
        if not is_finite_number(self.p) or not 0 <= self.p <= 1:
            raise InputError(f"Erasing happens with a probability p in [0, 1], not {self.p!r}.")
        for name, pair in (("scale", self.scale), ("ratio", self.ratio)):
            if not isinstance(pair, Sequence) or len(pair) != 2 or not all(map(is_finite_number, pair)):
                raise InputError(f"Erasing needs two numbers as {name}, the least and the most, not {pair!r}.")
        if not 0 <= self.scale[0] <= self.scale[1] <= 1:
            raise InputError(f"Erasing needs 0 <= scale[0] <= scale[1] <= 1 (shares of the image), not {self.scale}.")
        if not 0 < self.ratio[0] <= self.ratio[1] < math.inf:
            raise InputError(f"Erasing needs 0 < ratio[0] <= ratio[1] (height / width), not {self.ratio}.")

    def __call__(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Erase in place in `images` [B, C, H, W], driven by `uniform` [B, draws] in [0, 1)."""
        if images.dim() != 4:
            raise InputError(
                f"Erasing needs images of shape [batch, channels, height, width], not {list(images.shape)}: "
                "train on these inputs without erasing."
            )
        top, left, height, width = self.rectangles(uniform, images.shape[2], images.shape[3])
        rows = torch.arange(images.shape[2], dtype=top.dtype, device=images.device)
        columns = torch.arange(images.shape[3], dtype=top.dtype, device=images.device)
        in_rows = (rows >= top[:, None]) & (rows < (top + height)[:, None])
        in_columns = (columns >= left[:, None]) & (columns < (left + width)[:, None])
        # A product of floats is three times as fast as a boolean mask and `masked_fill_`.
        inside = in_rows.to(images.dtype)[:, None, :, None] * in_columns.to(images.dtype)[:, None, None, :]
        return images.mul_(1 - inside)

    def rectangles(self, uniform: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Each sample's (top, left, height, width) in a rows x columns image; height = width = 0 leaves it alone."""
        share, ratio = uniform[:, 3 : 3 + ATTEMPTS], uniform[:, 3 + ATTEMPTS :]
        area = rows * columns * (self.scale[0] + (self.scale[1] - self.scale[0]) * share)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        aspect = torch.exp(low + (high - low) * ratio)
        heights, widths = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()

        fits = (heights < rows) & (widths < columns)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        erased = fits.any(1) & (uniform[:, 0] < self.p)
        height = heights.gather(1, first).squeeze(1) * erased
        width = widths.gather(1, first).squeeze(1) * erased
        # u < 1 is a multiple of 2^-24, so u * m rounds to less than m and the floor is uniform over 0..m-1.
        top = (uniform[:, 1] * (rows - height + 1)).floor()
        left = (uniform[:, 2] * (columns - width + 1)).floor()
        return top, left, height, width
