import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.data.readers import read_cifar10, read_idx
from gossamer.errors import GossamerError

IDX_CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array: np.ndarray) -> bytes:
    code = IDX_CODES[array.dtype.str[1:]]
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@given(
    st.sampled_from(sorted(IDX_CODES)).flatmap(
        lambda code: hnp.arrays(
            np.dtype(code),
            hnp.array_shapes(max_dims=4, max_side=4),
            elements={"allow_nan": False} if code.startswith("f") else None,
        )
    )
)
def test_idx_returns_what_was_written(array: np.ndarray) -> None:
    result = read_idx(idx(array), "file")
    assert result.numpy().dtype == array.dtype
    assert np.array_equal(result.numpy(), array)


def test_idx_gives_a_writable_tensor_of_its_own() -> None:
    data = idx(np.arange(6, dtype=np.uint8).reshape(2, 3))
    result = read_idx(data, "file")
    result += 1
    assert read_idx(data, "file").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin like an IDX file"),
        (b"\0\0\x08", "does not begin like an IDX file"),
        (b"\x1f\x8b\x08\x03" + bytes(20), "does not begin like an IDX file"),
        (b"\0\0\x0a\x01\0\0\0\0", "does not begin like an IDX file"),
        (b"\0\0\x08\x00", "has no dimensions"),
        (b"\0\0\x08\x03\0\0\0\x01", "ends among them"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], "announces 18 bytes and it has 17"),
        (idx(np.zeros((2, 3), np.uint8)) + b"\0", "announces 18 bytes and it has 19"),
        (b"\0\0\x0e\x02" + b"\xff" * 8 + b"\0", "announces"),
        (b"\0\0\x08\xff" + b"\xff" * 1020, "has no dimensions, or too many"),
        (b"\0\0\x08\x04" + bytes(4) + b"\xff" * 12, "it holds nothing, in dimensions as large as 4,294,967,295"),
    ],
)
def test_idx_refuses_what_is_not_idx(data: bytes, why: str) -> None:
    with pytest.raises(GossamerError, match=why) as error:
        read_idx(data, "some/file.gz")
    assert str(error.value).startswith("some/file.gz cannot be read")


def test_cifar10_puts_labels_and_planes_where_they_belong() -> None:
    first, second = np.arange(3072) % 251, np.arange(3072) % 13
    data = bytes([7, *first.tolist(), 2, *second.tolist()])
    images, labels = read_cifar10(data, "file")
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    assert labels.tolist() == [7, 2]
    assert images.shape == (2, 3, 32, 32)
    # Plane 1 (green), row 2, column 3 is byte 1024 + 2 * 32 + 3 of the sample's pixels.
    assert images[0, 1, 2, 3] == first[1024 + 2 * 32 + 3]
    assert images[1].flatten().tolist() == second.tolist()


@pytest.mark.parametrize("size", [0, 1, 3072, 3074])
def test_cifar10_refuses_a_broken_length(size: int) -> None:
    with pytest.raises(GossamerError, match="not a whole number of samples"):
        read_cifar10(bytes(size), "data_batch_1.bin")
