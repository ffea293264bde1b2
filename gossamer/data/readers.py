"""From the bytes of a dataset's files to tensors: checksums, the official file formats, and what each dataset does.

Every reader takes the unpacked content of one file and `where` it came from (for the error message), checks every
length before it relies on it, and never executes anything found in a file.
"""

import hashlib
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.errors import InputError

Array = npt.NDArray[Any]


class Content(NamedTuple):
    """One unpacked file: its bytes, and the path to name when they make no sense."""

    data: bytes
    where: str


class Tensors(NamedTuple):
    """What a dataset's files hold: uint8 images [n, C, H, W] and int64 labels [n], for training and for testing."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def has_checksum(content: bytes | Path, checksum: str) -> bool:
    """Whether bytes, or a file, have a checksum that is written "algorithm:hexadecimal".

    >>> has_checksum(b"", "md5:d41d8cd98f00b204e9800998ecf8427e")
    True
    """
    algorithm, _, expected = checksum.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    if isinstance(content, bytes):
        digest.update(content)
    else:
        with content.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest() == expected


def damaged(where: str, why: str) -> InputError:
    """The error for a file whose content does not fit its format."""
    return InputError(f"{where} cannot be read: {why}; the file is damaged or is not what its name says, replace it.")


_MOST_DIMENSIONS = 8
_MOST_VALUES = 2**40


def _is_absurd(shape: tuple[int, ...]) -> bool:
    """Whether an array without values claims dimensions that no array can have."""
    return math.prod(max(1, size) for size in shape) > _MOST_VALUES


_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(data: bytes, where: str) -> Tensor:
    """Read an IDX file, the format of MNIST and Fashion-MNIST.

    Two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian 32-bit number,
    then the values in row-major order, big-endian.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "example")
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise damaged(where, "it does not begin like an IDX file")
    dtype, rank = np.dtype(_IDX_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if not 0 < rank <= _MOST_DIMENSIONS or len(data) < start:
        raise damaged(where, "its IDX header has no dimensions, or too many, or ends among them")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise damaged(where, f"its header announces {expected:,} bytes and it has {len(data):,}")
    if _is_absurd(shape):
        raise damaged(where, f"it holds nothing, in dimensions as large as {max(shape):,}")
    values = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return torch.from_numpy(values.astype(dtype.newbyteorder("=")))


_CIFAR_ROW = 1 + 3 * 32 * 32


def read_cifar10(data: bytes, where: str) -> tuple[Tensor, Tensor]:
    """Read one batch of CIFAR-10's binary version into images [n, 3, 32, 32] and labels [n].

    Each sample is 3,073 bytes: the label 0..9, then the red, the green and the blue plane, row by row.
    """
    if not data or len(data) % _CIFAR_ROW:
        raise damaged(where, f"its {len(data):,} bytes are not a whole number of samples of {_CIFAR_ROW:,} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_ROW)
    images = torch.from_numpy(rows[:, 1:].copy()).reshape(-1, 3, 32, 32)
    return images, torch.from_numpy(rows[:, 0].astype(np.int64))


# Numbers of the MAT-file format: how values are stored ("mi...") and which class MATLAB gave the array ("mx...").
_MI_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MX_NUMERIC = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_MI_MATRIX, _MI_COMPRESSED = 14, 15
_MAT_HEADER = 128
_COMPLEX_FLAG = 0x08
_MOST_VARIABLES = 1000


def read_mat(data: bytes, where: str, most: int = 1 << 30) -> dict[str, Array]:
    """Read the numeric arrays of a MATLAB version 5 file (which MATLAB 5 to 7.2, and `save -v7`, write).

    Both byte orders, plain and zlib-compressed variables, values stored in a smaller type than their class. Arrays keep
    MATLAB's shape, so X[row, column, channel, sample] is what MATLAB shows. Real numeric variables are returned by
    name; cells, structures, text, sparse and complex variables are passed over. Compressed variables may unpack to
    `most` bytes together; larger ones are read when they are saved without compression (`save -v6`).
    """
    if b"\x89HDF" in (data[:4], data[512:516]):
        raise InputError(f"{where} is a MATLAB 7.3 (HDF5) file; save it again in MATLAB with the option -v7.")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:_MAT_HEADER])
    if order is None:
        raise damaged(where, "it has no MATLAB version 5 header")
    arrays: dict[str, Array] = {}
    room = most
    for number, (kind, body) in enumerate(_elements(memoryview(data)[_MAT_HEADER:], order, where)):
        if number == _MOST_VARIABLES:
            raise damaged(where, f"it has more than {_MOST_VARIABLES:,} variables")
        if kind == _MI_COMPRESSED:
            unpacked = _unpacked(body, room, most, where)
            room -= len(unpacked)
            # A compressed element holds one variable.
            kind, body = next(_elements(unpacked, order, where), (0, unpacked))
        if kind == _MI_MATRIX:
            arrays.update(_variable(body, order, where, max(most, len(data))))
    return arrays


def _unpacked(body: memoryview, room: int, most: int, where: str) -> memoryview:
    """A compressed variable, as long as it fits into what is left, `room`, of the bytes of all, `most`."""
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(body, room + 1)
    except zlib.error as error:
        raise damaged(where, f"a compressed variable does not unpack ({error})") from error
    if len(found) > room:
        raise damaged(where, f"its variables unpack to more than {most:,} bytes")
    if not unpacking.eof:
        raise damaged(where, "a compressed variable does not unpack (it ends too early)")
    return memoryview(found)


def _elements(data: memoryview, order: str, where: str) -> Iterator[tuple[int, memoryview]]:
    """Walk through tagged elements: (type, size) in 8 bytes, or both packed into 4 bytes with 4 bytes of values."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise damaged(where, "it ends inside the tag of an element")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        else:
            # Elements begin on multiples of 8 bytes, except behind a compressed one.
            padding = 0 if kind == _MI_COMPRESSED else -size % 8
            start, step = at + 8, 8 + size + padding
        if start + size > len(data) or (step == 8 and size > 4):
            raise damaged(where, "an element is longer than the file")
        yield kind, data[start : start + size]
        at += step


def _variable(body: memoryview, order: str, where: str, most: int) -> dict[str, Array]:
    """One miMATRIX element: flags, dimensions, name, values; empty when it is not a real numeric array."""
    parts = list(islice(_elements(body, order, where), 4))
    if len(parts) < 3 or len(parts[0][1]) != 8 or len(parts[1][1]) not in range(0, 4 * _MOST_DIMENSIONS + 1, 4):
        raise damaged(where, "a variable has no flags, dimensions or name")
    (flags,) = struct.unpack_from(f"{order}I", parts[0][1])
    if flags & 0xFF not in _MX_NUMERIC or (flags >> 8) & _COMPLEX_FLAG:
        return {}
    shape = tuple(int(size) for size in np.frombuffer(parts[1][1], f"{order}i4"))
    name = bytes(parts[2][1]).decode("ascii", "replace")
    if len(parts) < 4 or parts[3][0] not in _MI_STORED:
        raise damaged(where, f"the variable '{name}' has no values")
    stored = np.dtype(order + _MI_STORED[parts[3][0]])
    if min(shape, default=0) < 0 or len(parts[3][1]) != math.prod(shape) * stored.itemsize or _is_absurd(shape):
        raise damaged(where, f"the variable '{name}' has not as many values as its dimensions {shape} say")
    wanted = np.dtype(_MX_NUMERIC[flags & 0xFF])
    if math.prod(shape) * wanted.itemsize > most:
        raise damaged(where, f"the variable '{name}' has more than {most:,} bytes")
    values = np.frombuffer(parts[3][1], stored).astype(wanted, copy=False)
    return {name: values.reshape(shape, order="F")}


SVHN_LARGEST = 73_257 * (32 * 32 * 3 + 8) + 1024
"""Bytes of the images and labels of the larger file, tags included."""


def read_svhn(data: bytes, where: str) -> tuple[Tensor, Tensor]:
    """Read one file of SVHN's cropped digits into images [n, 3, 32, 32] and labels [n].

    The file holds X [32, 32, 3, n] in uint8 and y [n, 1] with the labels 1..10, where 10 is the digit 0.
    """
    arrays = read_mat(data, where, SVHN_LARGEST)
    images, labels = arrays.get("X"), arrays.get("y")
    if images is None or labels is None:
        raise damaged(where, f"it should hold the variables X and y and holds {', '.join(arrays) or 'none'}")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise damaged(where, f"X should be uint8 [32, 32, 3, n] and is {images.dtype} {list(images.shape)}")
    targets = labels.ravel().astype(np.int64)
    if len(targets) != images.shape[3]:
        raise damaged(where, f"it has {images.shape[3]:,} images and {len(targets):,} labels")
    if len(targets) and not (targets.min() >= 1 and targets.max() <= 10):
        raise damaged(where, f"its labels run from {targets.min()} to {targets.max()} instead of 1 to 10")
    return torch.from_numpy(images.transpose(3, 2, 0, 1).copy()), torch.from_numpy(targets % 10)


def decode_idx(files: Mapping[str, Content]) -> Tensors:
    """MNIST and Fashion-MNIST: images and labels, for training and for testing, in one IDX file each."""
    train, test = (
        (
            read_idx(*files[f"{part}-images-idx3-ubyte"]).unsqueeze(1),
            read_idx(*files[f"{part}-labels-idx1-ubyte"]).long(),
        )
        for part in ("train", "t10k")
    )
    return Tensors(*train, *test)


def decode_cifar10(files: Mapping[str, Content]) -> Tensors:
    """CIFAR-10: five batches for training, one for testing."""
    batches = [read_cifar10(*files[f"data_batch_{number}.bin"]) for number in range(1, 6)]
    images, labels = zip(*batches, strict=True)
    return Tensors(torch.cat(images), torch.cat(labels), *read_cifar10(*files["test_batch.bin"]))


def decode_svhn(files: Mapping[str, Content]) -> Tensors:
    """SVHN: one MATLAB file for training, one for testing."""
    return Tensors(*read_svhn(*files["train_32x32.mat"]), *read_svhn(*files["test_32x32.mat"]))


def decode_digits(files: Mapping[str, Content]) -> Tensors:
    """The digits: one set of images, of which each fifth of every class (the 5th, the 10th, ...) is for testing."""
    images = read_idx(*files["images-idx3-ubyte"]).unsqueeze(1)
    labels = read_idx(*files["labels-idx1-ubyte"]).long()
    position = torch.zeros_like(labels)
    for label in range(10):
        members = labels == label
        position[members] = torch.arange(1, int(members.sum()) + 1)
    test = position % 5 == 0
    return Tensors(images[~test], labels[~test], images[test], labels[test])
