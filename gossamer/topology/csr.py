"""Compressed sparse rows: row i owns the positions indptr[i] to indptr[i+1] of `indices`, columns ascending."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def frozen(array: npt.NDArray[np.generic]) -> None:
    """Make an array read-only, so that whoever holds it may share it."""
    array.setflags(write=False)


def row_pointers(sorted_rows: Ints, n: int) -> Ints:
    """`indptr` of n rows from the ascending row number of every entry."""
    return np.searchsorted(sorted_rows, np.arange(n + 1)).astype(np.int64)


def row_numbers(indptr: Ints) -> Ints:
    """The row number of every entry: the inverse of `row_pointers`."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def circulant_order(indptr: Ints, indices: Ints) -> Ints | None:
    """Positions [n, k] that list each row's entries by column - row mod n, or None if the pattern is not circulant.

    In a circulant pattern every row is the row above it moved one place to the right.
    """
    n = len(indptr) - 1
    lengths = np.diff(indptr)
    if np.any(lengths != lengths[0]):
        return None
    offsets = (indices.reshape(n, -1) - np.arange(n)[:, None]) % n
    order = np.argsort(offsets, axis=1)
    offsets = np.take_along_axis(offsets, order, axis=1)
    if np.any(offsets != offsets[0]):
        return None
    return np.asarray(order + indptr[:-1, None])
