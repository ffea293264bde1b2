"""A small network for small images."""

from torch import nn

from gossamer.models._shape import check


class SmallCNN(nn.Sequential):
    """Two 3x3 convolutions and one linear layer, for the 8x8 `digits`: 6,186 parameters (10 classes).

    conv 3x3 -> 16, relu, max pool 2, GroupNorm(4, 16); conv 3x3 -> 32, relu, max pool 2, GroupNorm(4, 32);
    linear `classes`. The convolutions keep the size, so the smallest image is 4x4.

    >>> sum(p.numel() for p in SmallCNN((1, 8, 8), 10).parameters())
    6186
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        check("SmallCNN", shape, classes, smallest=4)
        channels, height, width = shape
        super().__init__(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 16),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 32),
            nn.Flatten(),
            nn.Linear(32 * (height // 4) * (width // 4), classes),
        )
