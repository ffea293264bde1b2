"""Image classifiers with group normalization, as in the paper.

Every model is made by the same call, `Model(shape, classes)`, where `shape` is (channels, height, width):

>>> model = LeNet(shape=(1, 28, 28), classes=10)
>>> sum(p.numel() for p in model.parameters())
44470

Initialization is PyTorch's default for every layer. Any other `nn.Module` can be trained just as well.
"""

from collections.abc import Callable

from torch import nn

from gossamer.errors import unknown
from gossamer.models.lenet import LeNet
from gossamer.models.resnet import ResNet34
from gossamer.models.small_cnn import SmallCNN
from gossamer.models.vgg import VGG11

__all__ = ["VGG11", "LeNet", "ResNet34", "SmallCNN", "get", "names"]

_BY_NAME: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {
    "lenet": LeNet,
    "resnet-34": ResNet34,
    "small-cnn": SmallCNN,
    "vgg-11": VGG11,
}


def names() -> list[str]:
    """The names `get` knows.

    >>> names()
    ['lenet', 'resnet-34', 'small-cnn', 'vgg-11']
    """
    return sorted(_BY_NAME)


def get(name: str) -> Callable[[tuple[int, int, int], int], nn.Module]:
    """The model called `name`, to be made by `model(shape, classes)`.

    >>> get("lenet") is LeNet
    True
    """
    if name not in _BY_NAME:
        raise unknown("model", name, _BY_NAME)
    return _BY_NAME[name]
