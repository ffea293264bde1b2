"""The datasets that `load` knows, as facts: files, checksums, addresses, classes, normalization, augmentation.

Checksums are written "algorithm:hexadecimal". `contents` are those of the unpacked files, so that a file counts as
official however it was compressed; `published` are those of the files as their makers offer them for download.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from gossamer.data import digits
from gossamer.data.augment import Augmentation
from gossamer.data.normalization import Normalization
from gossamer.data.readers import Content, Tensors, read_cifar10, read_idx, read_svhn


@dataclass(frozen=True)
class Published:
    """A file as it is offered for download: its name, where (the first address that answers), checksum and bytes."""

    name: str
    addresses: tuple[str, ...]
    checksum: str
    size: int


@dataclass(frozen=True)
class Entry:
    """One dataset: what its files are called, what they must contain, and how they are read.

    `folders` are the places below a data directory where the files may be, in order; the first is where downloads go.
    `archive` names a published .tar.gz that may stand in for all the unpacked files. `system_folder` is where an
    operating system's package puts the files; `packaged` is set when they come with Gossamer and are not searched for.
    """

    name: str
    title: str
    sample_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    normalization: Normalization
    augmentation: Augmentation | None
    contents: Mapping[str, str]
    decode: Callable[[Mapping[str, Content]], Tensors]
    folders: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    archive: str | None = None
    system_folder: Path | None = None
    packaged: Path | None = None

    @property
    def download_size(self) -> int:
        """How many bytes a download transfers; 0 when nothing needs to be downloaded."""
        return sum(file.size for file in self.published)


_ZERO_TO_ONE = Normalization()
_MINUS_ONE_TO_ONE = Normalization(mean=0.5, std=0.5)
_DIGIT_NAMES = tuple("0123456789")


def _decode_idx(files: Mapping[str, Content]) -> Tensors:
    train, test = (
        (
            read_idx(*files[f"{part}-images-idx3-ubyte"]).unsqueeze(1),
            read_idx(*files[f"{part}-labels-idx1-ubyte"]).long(),
        )
        for part in ("train", "t10k")
    )
    return Tensors(*train, *test)


def _decode_cifar10(files: Mapping[str, Content]) -> Tensors:
    batches = [read_cifar10(*files[f"data_batch_{number}.bin"]) for number in range(1, 6)]
    images, labels = zip(*batches, strict=True)
    return Tensors(torch.cat(images), torch.cat(labels), *read_cifar10(*files["test_batch.bin"]))


def _decode_svhn(files: Mapping[str, Content]) -> Tensors:
    return Tensors(*read_svhn(*files["train_32x32.mat"]), *read_svhn(*files["test_32x32.mat"]))


def _published(addresses: tuple[str, ...], files: Mapping[str, tuple[str, int]]) -> tuple[Published, ...]:
    return tuple(
        Published(name, tuple(address + name for address in addresses), checksum, size)
        for name, (checksum, size) in files.items()
    )


FASHION_MNIST = Entry(
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
    decode=_decode_idx,
    folders=("fashion-mnist", "FashionMNIST/raw"),
    published=_published(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "train-images-idx3-ubyte.gz": ("md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1-ubyte.gz": ("md5:25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3-ubyte.gz": ("md5:bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1-ubyte.gz": ("md5:bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
    ),
    system_folder=Path("/usr/share/datasets/fashion-mnist"),  # Debian's package dataset-fashion-mnist
)

MNIST = Entry(
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
    decode=_decode_idx,
    folders=("mnist", "MNIST/raw"),
    published=_published(
        # The makers' own page, last, answers only now and then.
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        {
            "train-images-idx3-ubyte.gz": ("md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1-ubyte.gz": ("md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3-ubyte.gz": ("md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1-ubyte.gz": ("md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
    ),
)

CIFAR_10 = Entry(
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
    decode=_decode_cifar10,
    folders=("cifar-10", "cifar-10/cifar-10-batches-bin", "cifar-10-batches-bin"),
    published=_published(
        ("https://www.cs.toronto.edu/~kriz/",),
        {"cifar-10-binary.tar.gz": ("md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171)},
    ),
    archive="cifar-10-binary.tar.gz",
)

SVHN = Entry(
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
    decode=_decode_svhn,
    folders=("svhn",),
    published=_published(
        ("http://ufldl.stanford.edu/housenumbers/",),
        {
            "train_32x32.mat": ("md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            "test_32x32.mat": ("md5:eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        },
    ),
)

DIGITS = Entry(
    name="digits",
    title="UCI handwritten digits, 8x8",
    sample_shape=(1, 8, 8),
    classes=_DIGIT_NAMES,
    normalization=Normalization(std=16 / 255),  # uint8 is divided by 255 first: pixels 0..16 become [0, 1]
    augmentation=None,
    contents={
        digits.IMAGES: "sha256:359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96",
        digits.LABELS: "sha256:ce71631c1f31ce56fa54f31d1d498fafacff59b001e6c30c4a5e29508aa277ad",
    },
    decode=digits.decode,
    packaged=digits.FOLDER,
)

CATALOG = {entry.name: entry for entry in (FASHION_MNIST, CIFAR_10, SVHN, MNIST, DIGITS)}
