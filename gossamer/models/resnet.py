"""ResNet-34 in its CIFAR form, with group normalization."""

from torch import Tensor, nn
from torch.nn import functional

from gossamer.models._shape import check

GROUPS = 8
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride of the first block


class BasicBlock(nn.Module):
    """relu(body(x) + shortcut(x)) with body = conv 3x3, norm, relu, conv 3x3, norm.

    The shortcut is the identity, or conv 1x1 and norm where the shape changes. Convolutions have no bias: the norm
    that follows has one.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.GroupNorm(GROUPS, channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(GROUPS, channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.GroupNorm(GROUPS, channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return functional.relu(self.body(x) + self.shortcut(x))


class ResNet34(nn.Sequential):
    """3x3 stem without max pool, stages of 3, 4, 6, 3 blocks with 64, 128, 256, 512 channels, mean, linear.

    21,282,122 parameters on 3x32x32 (10 classes). GroupNorm(8) everywhere; stages 2 to 4 halve the image.

    >>> sum(p.numel() for p in ResNet34((3, 32, 32), 10).parameters())
    21282122
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        check("ResNet34", shape, classes, smallest=8)
        width = STAGES[0][0]
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
            nn.GroupNorm(GROUPS, width),
            nn.ReLU(inplace=True),
        ]
        for channels, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(BasicBlock(width, channels, stride if block == 0 else 1))
                width = channels
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
