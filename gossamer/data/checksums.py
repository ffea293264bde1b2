"""Checksums, written "algorithm:hexadecimal", such as "md5:d41d8cd98f00b204e9800998ecf8427e"."""

import hashlib
from pathlib import Path


def bytes_have(checksum: str, data: bytes) -> bool:
    """Whether `data` has this checksum.

    >>> bytes_have("md5:d41d8cd98f00b204e9800998ecf8427e", b"")
    True
    """
    algorithm, _, expected = checksum.partition(":")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == expected


def file_has(checksum: str, path: Path) -> bool:
    """Whether the file at `path` has this checksum; it is read piece by piece."""
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return digest.hexdigest() == expected
