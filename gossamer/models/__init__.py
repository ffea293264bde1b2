"""Image classifiers with group normalization, as in the paper.

Every model is made by the same call, `Model(shape, classes)`, where `shape` is (channels, height, width):

>>> model = get("lenet")(shape=(1, 28, 28), classes=10)
>>> sum(p.numel() for p in model.parameters())
44470

Initialization is PyTorch's default for every layer. Any other `nn.Module` can be trained just as well.
"""

from gossamer.models.image_classifiers import VGG11, LeNet, ResNet34, SmallCNN, get, names, register

__all__ = ["VGG11", "LeNet", "ResNet34", "SmallCNN", "get", "names", "register"]
