import struct
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.data.catalog import CATALOG
from gossamer.data.loading import load
from gossamer.data.readers import read_mat, read_svhn
from gossamer.errors import GossamerError

CLASSES = {"f8": 6, "f4": 7, "i1": 8, "u1": 9, "i2": 10, "u2": 11, "i4": 12, "u4": 13, "i8": 14, "u8": 15}
STORED = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12, "u8": 13}


def element(kind: int, body: bytes, order: str, small: bool = False) -> bytes:
    if small:
        return struct.pack(f"{order}I", len(body) << 16 | kind) + body.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(body)) + body + bytes(-len(body) % 8)


def variable(
    name: str, array: np.ndarray, order: str = "<", stored: str | None = None, flags: int = 0, kind: int | None = None
) -> bytes:
    """An miMATRIX element holding `array`, its values stored in the type `stored`."""
    code = array.dtype.str[1:]
    stored = stored or code
    encoded = name.encode()
    body = element(6, struct.pack(f"{order}II", (kind or CLASSES[code]) | flags << 8, 0), order)
    body += element(5, struct.pack(f"{order}{array.ndim}i", *array.shape), order)
    body += element(1, encoded, order, small=len(encoded) <= 4)
    body += element(STORED[stored], array.astype(order + stored).tobytes(order="F"), order)
    return element(14, body, order)


def compressed(part: bytes, order: str = "<") -> bytes:
    packed = zlib.compress(part)
    return struct.pack(f"{order}II", 15, len(packed)) + packed


def mat(*parts: bytes, order: str = "<") -> bytes:
    header = b"MATLAB 5.0 MAT-file, made by hand".ljust(124) + struct.pack(f"{order}H", 0x0100)
    return header + (b"IM" if order == "<" else b"MI") + b"".join(parts)


def svhn(labels: list[int], pack: bool, seed: int = 0) -> tuple[bytes, np.ndarray]:
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 32, 3, len(labels)), dtype=np.uint8)
    parts = [variable("X", pixels), variable("y", np.array(labels, np.uint8)[:, None])]
    return mat(*(compressed(part) if pack else part for part in parts)), pixels


@given(
    code=st.sampled_from(sorted(CLASSES)),
    shape=st.lists(st.integers(0, 4), min_size=2, max_size=4),
    order=st.sampled_from("<>"),
    pack=st.booleans(),
    name=st.text("abcXYZ_019", min_size=1, max_size=9),
)
def test_mat_returns_what_was_written(code: str, shape: list[int], order: str, pack: bool, name: str) -> None:
    array = np.arange(int(np.prod(shape)) or 0).astype(code).reshape(shape)
    part = variable(name, array, order)
    result = read_mat(mat(compressed(part, order) if pack else part, order=order), "file")
    assert list(result) == [name]
    assert result[name].dtype == array.dtype
    assert np.array_equal(result[name], array)


def test_mat_restores_the_class_of_values_stored_in_a_smaller_type() -> None:
    array = np.array([[1.0, 2.0, 250.0]])
    result = read_mat(mat(variable("y", array, stored="u1")), "file")["y"]
    assert result.dtype == np.float64
    assert result.tolist() == [[1.0, 2.0, 250.0]]


def test_mat_reads_a_value_packed_into_its_tag() -> None:
    flags, sizes = element(6, struct.pack("<II", 9, 0), "<"), element(5, struct.pack("<ii", 1, 3), "<")
    body = flags + sizes + element(1, b"y", "<", small=True) + element(2, b"\1\2\3", "<", small=True)
    assert read_mat(mat(element(14, body, "<")), "file")["y"].tolist() == [[1, 2, 3]]


def test_mat_passes_over_what_is_not_a_real_numeric_array() -> None:
    one = np.ones((1, 1))
    text, complex_one = variable("text", one, kind=4), variable("z", one, flags=0x08)
    result = read_mat(mat(text, complex_one, element(5, bytes(8), "<"), variable("kept", one)), "file")
    assert list(result) == ["kept"]


GOOD = variable("X", np.arange(6, dtype=np.uint8).reshape(2, 3))
NO_VALUES = element(6, struct.pack("<II", 9, 0), "<") + element(5, bytes(8), "<") + element(1, b"y", "<", small=True)
NEGATIVE = NO_VALUES.replace(element(5, bytes(8), "<"), element(5, struct.pack("<ii", -1, -1), "<"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no MATLAB version 5 header"),
        (b"x" * 200, "no MATLAB version 5 header"),
        (mat(GOOD)[:512].ljust(512) + b"\x89HDF\r\n", "MATLAB 7.3"),
        (mat(GOOD[:-8]), "longer than the file"),
        (mat(GOOD + b"\0\0\0"), "inside the tag"),
        (mat(struct.pack("<I", 9 << 16 | 2) + bytes(4)), "longer than the file"),
        (mat(struct.pack("<II", 15, 5) + b"junk!"), "does not unpack"),
        (mat(element(14, b"", "<")), "no flags, dimensions or name"),
        (mat(element(14, NO_VALUES, "<")), "'y' has no values"),
        (mat(element(14, NO_VALUES + element(2, b"\1", "<"), "<")), "not as many values"),
        (mat(element(14, NEGATIVE + element(2, b"\1", "<"), "<")), "not as many values"),
    ],
)
def test_mat_refuses_what_it_cannot_read(data: bytes, why: str) -> None:
    with pytest.raises(GossamerError, match=why):
        read_mat(data, "train_32x32.mat")


EMPTY = NO_VALUES.replace(element(5, bytes(8), "<"), element(5, struct.pack("<4i", 0, *[2**31 - 1] * 3), "<"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (mat(compressed(bytes(10**6))), "its variables unpack to more than 1,000 bytes"),
        (mat(*[compressed(GOOD)] * 50), "its variables unpack to more than 1,000 bytes"),
        (mat(variable("y", np.ones((1, 900)), stored="u1")), "the variable 'y' has more than 1,0.. bytes"),
        (mat(*[element(5, b"", "<")] * 2000), "more than 1,000 variables"),
        (mat(element(14, EMPTY + element(2, b"", "<"), "<")), "not as many values"),
    ],
)
def test_mat_allocates_no_more_than_it_may(data: bytes, why: str) -> None:
    with pytest.raises(GossamerError, match=why):
        read_mat(data, "train_32x32.mat", most=1000)


@given(st.data())
def test_mat_never_fails_in_any_other_way(data: st.DataObject) -> None:
    good = mat(GOOD, compressed(GOOD))
    at = data.draw(st.integers(126, len(good) - 1))
    broken = good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
    for content in (broken, good[:at]):
        try:
            answer: object = read_mat(content, "file")
        except GossamerError as refusal:
            answer = refusal
        assert isinstance(answer, dict) or "file" in str(answer)


@pytest.mark.parametrize("pack", [False, True])
def test_svhn_turns_columns_into_images_and_ten_into_zero(pack: bool) -> None:
    data, pixels = svhn([1, 10, 9], pack)
    images, labels = read_svhn(data, "file")
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    assert labels.tolist() == [1, 0, 9]
    assert images.shape == (3, 3, 32, 32)
    assert images.is_contiguous()
    assert images[2, 1, 5, 30] == pixels[5, 30, 1, 2]
    assert np.array_equal(images.numpy(), pixels.transpose(3, 2, 0, 1))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([GOOD], "should hold the variables X and y and holds X"),
        ([], "holds none"),
        ([GOOD, variable("y", np.ones((1, 1)))], r"X should be uint8 \[32, 32, 3, n\] and is uint8 \[2, 3\]"),
        ([variable("X", np.zeros((32, 32, 3, 2))), variable("y", np.ones((2, 1)))], "and is float64"),
        ([variable("X", np.zeros((32, 32, 3, 2), np.uint8)), variable("y", np.ones((3, 1)))], "2 images and 3 labels"),
        ([variable("X", np.zeros((32, 32, 3, 1), np.uint8)), variable("y", np.zeros((1, 1)))], "from 0 to 0"),
        ([variable("X", np.zeros((32, 32, 3, 1), np.uint8)), variable("y", np.full((1, 1), 11.0))], "from 11 to 11"),
    ],
)
def test_svhn_refuses_other_content(parts: list[bytes], why: str) -> None:
    with pytest.raises(GossamerError, match=why):
        read_svhn(mat(*parts), "train_32x32.mat")


def test_svhn_loads_from_its_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, pixels = svhn([3, 10, 4, 4], pack=True, seed=1)
    test, _ = svhn([5, 10], pack=False, seed=2)
    (tmp_path / "train_32x32.mat").write_bytes(train)
    (tmp_path / "test_32x32.mat").write_bytes(test)
    checksums = {
        "train_32x32.mat": f"sha256:{sha256(train).hexdigest()}",
        "test_32x32.mat": f"sha256:{sha256(test).hexdigest()}",
    }
    monkeypatch.setitem(CATALOG, "svhn", replace(CATALOG["svhn"], contents=checksums))
    data = load("svhn", tmp_path)
    assert data.train_targets.tolist() == [3, 0, 4, 4]
    assert data.test_targets.tolist() == [5, 0]
    assert np.array_equal(data.train_inputs.numpy(), pixels.transpose(3, 2, 0, 1))
    normalized = data.normalization(data.train_inputs)
    torch.testing.assert_close(normalized, (data.train_inputs / 255 - 0.5) / 0.5)
