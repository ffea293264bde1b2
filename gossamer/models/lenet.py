"""LeNet with group normalization."""

from torch import nn

from gossamer.models._shape import check


class LeNet(nn.Sequential):
    """Two 5x5 convolutions and three linear layers: 44,470 parameters on 1x28x28, 62,050 on 3x32x32 (10 classes).

    conv 5x5 -> 6, relu, max pool 2, GroupNorm(2, 6); conv 5x5 -> 16, relu, max pool 2, GroupNorm(4, 16);
    linear 120, relu, linear 84, relu, linear `classes`.

    >>> sum(p.numel() for p in LeNet((3, 32, 32), 10).parameters())
    62050
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        check("LeNet", shape, classes, smallest=16)
        channels, height, width = shape
        area = ((height - 4) // 2 - 4) // 2 * (((width - 4) // 2 - 4) // 2)
        super().__init__(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 6),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 16),
            nn.Flatten(),
            nn.Linear(16 * area, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, classes),
        )
