"""The datasets that `load` knows, as facts: files, checksums, addresses, classes, normalization, augmentation.

Checksums are written "algorithm:hexadecimal". `contents` has those of the unpacked files, so that a file counts as
official however it was compressed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gossamer.data.batches import Augmentation, Normalization
from gossamer.data.readers import (
    SVHN_LARGEST,
    Content,
    Tensors,
    decode_cifar10,
    decode_digits,
    decode_idx,
    decode_svhn,
)


@dataclass(frozen=True)
class CatalogEntry:
    """One dataset: what its files are called, what they must contain, and how they are read.

    `largest` is the size in bytes of its largest unpacked file: nothing is unpacked beyond it.

    `folders` are the places below a data directory where the files may be, in order; the first is where downloads go.
    `published` has the checksum and the size of each file as its makers offer it for download, at each of `addresses`
    (tried in turn). `archive` names a published .tar.gz that may stand in for all the unpacked files. `system_folder`
    is where an operating system's package puts the files; `packaged` is set when they come with Gossamer.
    """

    name: str
    title: str
    sample_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    normalization: Normalization
    augmentation: Augmentation | None
    contents: Mapping[str, str]
    largest: int
    decode: Callable[[Mapping[str, Content]], Tensors]
    folders: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    published: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    archive: str | None = None
    system_folder: Path | None = None
    packaged: Path | None = None

    @property
    def download_size(self) -> int:
        """How many bytes a download transfers; 0 when nothing needs to be downloaded."""
        return sum(size for _, size in self.published.values())


_ZERO_TO_ONE = Normalization()
_MINUS_ONE_TO_ONE = Normalization(mean=0.5, std=0.5)
_DIGIT_NAMES = tuple("0123456789")


FASHION_MNIST = CatalogEntry(
    name="fashion-mnist",
    title="Fashion-MNIST",
    sample_shape=(1, 28, 28),
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    normalization=_ZERO_TO_ONE,
    augmentation=Augmentation(padding=4),
    contents={
        "train-images-idx3-ubyte": "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "md5:9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "md5:8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "md5:15d484375f8d13e6eb1aabb0c3f46965",
    },
    largest=47_040_016,
    decode=decode_idx,
    folders=("fashion-mnist", "FashionMNIST/raw"),
    addresses=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    published={
        "train-images-idx3-ubyte.gz": ("md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        "train-labels-idx1-ubyte.gz": ("md5:25c81989df183df01b3e8a0aad5dffbe", 29_515),
        "t10k-images-idx3-ubyte.gz": ("md5:bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        "t10k-labels-idx1-ubyte.gz": ("md5:bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    },
    system_folder=Path("/usr/share/datasets/fashion-mnist"),  # Debian's package dataset-fashion-mnist
)

MNIST = CatalogEntry(
    name="mnist",
    title="MNIST",
    sample_shape=(1, 28, 28),
    classes=_DIGIT_NAMES,
    normalization=_ZERO_TO_ONE,
    augmentation=Augmentation(padding=4),
    contents={
        "train-images-idx3-ubyte": "md5:6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "md5:a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "md5:2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "md5:27ae3e4e09519cfbb04c329615203637",
    },
    largest=47_040_016,
    decode=decode_idx,
    folders=("mnist", "MNIST/raw"),
    # The makers' own page, last, answers only now and then.
    addresses=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
    published={
        "train-images-idx3-ubyte.gz": ("md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        "train-labels-idx1-ubyte.gz": ("md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        "t10k-images-idx3-ubyte.gz": ("md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        "t10k-labels-idx1-ubyte.gz": ("md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    },
)

CIFAR_10 = CatalogEntry(
    name="cifar-10",
    title="CIFAR-10",
    sample_shape=(3, 32, 32),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    normalization=_MINUS_ONE_TO_ONE,
    augmentation=Augmentation(padding=4, flip=True),
    contents={
        "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    largest=30_730_000,
    decode=decode_cifar10,
    folders=("cifar-10", "cifar-10/cifar-10-batches-bin", "cifar-10-batches-bin"),
    addresses=("https://www.cs.toronto.edu/~kriz/",),
    published={"cifar-10-binary.tar.gz": ("md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171)},
    archive="cifar-10-binary.tar.gz",
)

SVHN = CatalogEntry(
    name="svhn",
    title="SVHN (cropped digits)",
    sample_shape=(3, 32, 32),
    classes=_DIGIT_NAMES,
    normalization=_MINUS_ONE_TO_ONE,
    augmentation=Augmentation(padding=4),
    contents={
        "train_32x32.mat": "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    },
    largest=SVHN_LARGEST,
    decode=decode_svhn,
    folders=("svhn",),
    addresses=("http://ufldl.stanford.edu/housenumbers/",),
    published={
        "train_32x32.mat": ("md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
        "test_32x32.mat": ("md5:eb5a983be6a315427106f1b164d9cef3", 64_275_384),
    },
)

# The digits come with Gossamer, so that everything works without a network.
#
# 1,797 images of 8x8 pixels with values 0..16: the test part of *Optical Recognition of Handwritten Digits* by
# E. Alpaydin and C. Kaynak (UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49), licensed under
# CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), as distributed with scikit-learn. Values and order are
# unchanged; only the file format is ours: two gzip-compressed IDX files, 44 kB together.
#
# The split is fixed (`decode_digits`): 1,442 images to train on and 355 to test on, 34 to 36 of every class. Both parts
# contain the same 13 writers: the test measures how well a model knows these hands, not how well it reads new ones.
DIGITS = CatalogEntry(
    name="digits",
    title="UCI handwritten digits, 8x8",
    sample_shape=(1, 8, 8),
    classes=_DIGIT_NAMES,
    normalization=Normalization(std=16 / 255),  # uint8 is divided by 255 first: pixels 0..16 become [0, 1]
    augmentation=None,
    contents={
        "images-idx3-ubyte": "sha256:359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96",
        "labels-idx1-ubyte": "sha256:ce71631c1f31ce56fa54f31d1d498fafacff59b001e6c30c4a5e29508aa277ad",
    },
    largest=115_024,
    decode=decode_digits,
    packaged=Path(__file__).parent / "digits_uci",
)

CATALOG = {
    "fashion-mnist": FASHION_MNIST,
    "cifar-10": CIFAR_10,
    "svhn": SVHN,
    "mnist": MNIST,
    "digits": DIGITS,
}
