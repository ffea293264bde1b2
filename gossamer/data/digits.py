"""The handwritten digits that come with Gossamer, so that everything works without a network.

1,797 images of 8x8 pixels with values 0..16: the test part of *Optical Recognition of Handwritten Digits* by
E. Alpaydin and C. Kaynak (UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49), licensed under
CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), as distributed with scikit-learn. Values and order are
unchanged; only the file format is ours: two gzip-compressed IDX files, 44 kB together.

The split is fixed: of every class, counted in the order of the file, each fifth image (the 5th, the 10th, ...) is for
testing. That gives 1,442 images to train on and 355 to test on, 34 to 36 of every class. Both parts contain the same
13 writers: the test measures how well a model knows these hands, not how well it reads new ones.
"""

from collections.abc import Mapping
from pathlib import Path

import torch

from gossamer.data.readers import Content, Tensors, read_idx

FOLDER = Path(__file__).parent / "digits_uci"
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
_EVERY = 5


def decode(files: Mapping[str, Content]) -> Tensors:
    """The images [n, 1, 8, 8] and labels [n] of both files, cut into the fixed training and test parts."""
    images = read_idx(*files[IMAGES]).unsqueeze(1)
    labels = read_idx(*files[LABELS]).long()
    position = torch.zeros_like(labels)
    for label in range(10):
        members = labels == label
        position[members] = torch.arange(1, int(members.sum()) + 1)
    test = position % _EVERY == 0
    return Tensors(images[~test], labels[~test], images[test], labels[test])
