"""The image classifiers and how to find one by name: LeNet, VGG-11, ResNet-34 and a small CNN."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from gossamer._common.checks import normalized
from gossamer.errors import InputError, unknown

GROUPS = 8
VGG_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
RESNET_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride of the first block


class SmallCNN(nn.Sequential):
    """Two 3x3 convolutions and one linear layer, for the 8x8 `digits`: 6,186 parameters (10 classes).

    conv 3x3 -> 16, relu, max pool 2, GroupNorm(4, 16); conv 3x3 -> 32, relu, max pool 2, GroupNorm(4, 32);
    linear `classes`. The convolutions keep the size, so the smallest image is 4x4.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        _check("SmallCNN", shape, classes, smallest=4)
        channels, height, width = shape
        super().__init__(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 16),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 32),
            nn.Flatten(),
            nn.Linear(32 * (height // 4) * (width // 4), classes),
        )


class LeNet(nn.Sequential):
    """Two 5x5 convolutions and three linear layers: 44,470 parameters on 1x28x28, 62,050 on 3x32x32 (10 classes).

    conv 5x5 -> 6, relu, max pool 2, GroupNorm(2, 6); conv 5x5 -> 16, relu, max pool 2, GroupNorm(4, 16);
    linear 120, relu, linear 84, relu, linear `classes`.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        _check("LeNet", shape, classes, smallest=16)
        channels, height, width = shape
        area = ((height - 4) // 2 - 4) // 2 * (((width - 4) // 2 - 4) // 2)
        super().__init__(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 6),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 16),
            nn.Flatten(),
            nn.Linear(16 * area, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )


class VGG11(nn.Sequential):
    """64 M 128 M 256 256 M 512 512 M 512 512 M, then one linear layer: 9,231,114 parameters on 3x32x32 (10 classes).

    A number is a 3x3 convolution (with bias) to that many channels, GroupNorm(8) and relu; M is a 2x2 max pool. On
    32x32 images one position is left for the linear layer; on larger ones the positions are averaged.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        _check("VGG11", shape, classes, smallest=32)
        layers: list[nn.Module] = []
        channels = shape[0]
        for stage in VGG_STAGES:
            for width in stage:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1),
                    nn.GroupNorm(GROUPS, width),
                    nn.ReLU(),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


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
            nn.ReLU(),
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
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        _check("ResNet34", shape, classes, smallest=8)
        width = RESNET_STAGES[0][0]
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
            nn.GroupNorm(GROUPS, width),
            nn.ReLU(),
        ]
        for channels, blocks, stride in RESNET_STAGES:
            for block in range(blocks):
                layers.append(BasicBlock(width, channels, stride if block == 0 else 1))
                width = channels
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def _check(model: str, shape: tuple[int, int, int], classes: int, smallest: int) -> None:
    """Raise unless `shape` is (channels, height, width) with sides of at least `smallest`, and classes >= 1."""
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"{model} needs a shape (channels, height, width), not {tuple(shape)}.")
    if min(shape[1:]) < smallest:
        raise InputError(
            f"{model} halves its input several times and needs images of at least {smallest}x{smallest}, "
            f"not {shape[1]}x{shape[2]}: use a smaller model or larger images."
        )
    if classes < 1:
        raise InputError(f"{model} needs at least one class, not {classes}.")


_BY_NAME: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {
    "lenet": LeNet,
    "resnet-34": ResNet34,
    "small-cnn": SmallCNN,
    "vgg-11": VGG11,
}


def names() -> list[str]:
    """The names that `get` knows.

    >>> names()
    ['lenet', 'resnet-34', 'small-cnn', 'vgg-11']
    """
    return sorted(_BY_NAME)


def get(name: str) -> Callable[..., nn.Module]:
    """The model called `name`, to be made by `model(shape, classes)`.

    >>> get("lenet") is LeNet
    True
    """
    known = {**_BY_NAME, **OWN}
    if normalized(name) not in known:
        raise unknown("model", name, known)
    return known[normalized(name)]


OWN: dict[str, Callable[..., nn.Module]] = {}
"""Models that users have registered, by name."""


def register(name: str) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Make a class or function that is called with (shape, outputs), or with nothing, known by `name`.

    A decorator: `@gossamer.models.register("linear")`. Experiments find the model in a file given as `--load FILE`.
    """
    if normalized(name) in _BY_NAME:
        raise InputError(f"The model '{name}' is built in; choose another name.")

    def keep(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        OWN[normalized(name)] = make
        return make

    return keep
