"""VGG-11 in its CIFAR form, with group normalization."""

from torch import nn

from gossamer.models._shape import check

GROUPS = 8
STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(nn.Sequential):
    """64 M 128 M 256 256 M 512 512 M 512 512 M, then one linear layer: 9,231,114 parameters on 3x32x32 (10 classes).

    A number is a 3x3 convolution (with bias) to that many channels, GroupNorm(8) and relu; M is a 2x2 max pool. On
    32x32 images one position is left for the linear layer; on larger ones the positions are averaged.

    >>> sum(p.numel() for p in VGG11((3, 32, 32), 10).parameters())
    9231114
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        check("VGG11", shape, classes, smallest=32)
        layers: list[nn.Module] = []
        channels = shape[0]
        for stage in STAGES:
            for width in stage:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1),
                    nn.GroupNorm(GROUPS, width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
