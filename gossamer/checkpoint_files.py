"""Checkpoint files: named by their round, either whole or not there, and read without running any code in them.

A file carries the settings of its run, so that it is not continued by another one, and ends in a digest, so that a
damaged file is noticed.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gossamer.errors import GossamerError
from gossamer.files import replacing

_NAME = re.compile(r"round-(\d{9})\.ckpt")
_DIGEST = 32

UNREADABLE = (OSError, RuntimeError, ValueError)
"""What reading a damaged file raises."""


def path_of(directory: Path, round: int) -> Path:
    """Where the checkpoint of `round` lies."""
    return directory / f"round-{round:09d}.ckpt"


def rounds_in(directory: Path) -> list[int]:
    """The rounds whose checkpoints lie in `directory`, ascending."""
    if not directory.is_dir():
        return []
    return sorted(int(m[1]) for path in directory.iterdir() if (m := _NAME.fullmatch(path.name)))


def write(directory: Path, round: int, settings: dict[str, Any], content: dict[str, Any]) -> Path:
    """Write the checkpoint of `round`."""
    path = path_of(directory, round)
    with replacing(path) as temporary:
        torch.save({"round": round, "settings": settings, "content": content}, temporary)
        with temporary.open("rb") as file:
            digest, _ = _digests(file, temporary.stat().st_size)
        with temporary.open("ab") as file:
            file.write(digest)
    return path


def read(path: Path) -> dict[str, Any]:
    """The round, settings and content of a checkpoint; raises one of `UNREADABLE` if it is damaged."""
    with path.open("rb") as file:
        return _checked(file, path.stat().st_size)


def from_bytes(data: bytes) -> dict[str, Any]:
    """What `read` gives, from the bytes of a file."""
    return _checked(io.BytesIO(data), len(data))


def refuse_foreign(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise if a checkpoint was written under other settings than ours."""
    different = [key for key in ours if theirs.get(key) != ours[key]]
    if different:
        key = different[0]
        raise GossamerError(
            f"The checkpoint {path} belongs to another run: its {key} is {theirs.get(key)!r}, this run's is "
            f"{ours[key]!r}; choose another directory, or go on with the settings it was made with."
        )


def _checked(file: BinaryIO, size: int) -> dict[str, Any]:
    computed, written = _digests(file, size - _DIGEST)
    if computed != written:
        raise ValueError("its content does not match its digest")
    file.seek(0)
    saved: dict[str, Any] = torch.load(file, weights_only=True)
    return saved


def _digests(file: BinaryIO, left: int) -> tuple[bytes, bytes]:
    """The digest of the first `left` bytes, and the bytes after them. torch itself does not notice a flipped bit."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.digest(), file.read()
