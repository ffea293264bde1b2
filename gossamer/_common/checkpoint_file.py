"""Checkpoint files: named by their round, either whole or not there, and read without running any code in them.

A file carries the settings of its run, so that it is not continued by another one, and ends in a digest, so that a
damaged file is noticed.
"""

import hashlib
import io
import itertools
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gossamer._common.files import cannot_write, replacing
from gossamer._common.formatting import said
from gossamer._common.plain_values import plain
from gossamer.errors import GossamerError, InputError

_NAME = re.compile(r"round-(\d{9})\.ckpt")
_UNFINISHED = re.compile(r"\.round-\d{9}\.ckpt\.[0-9a-f]+\.tmp")
_DIGEST = 32


class Damaged(ValueError):
    """The content of a checkpoint does not match its digest: it was cut, or changed after it was written."""


class Foreign(GossamerError):
    """A checkpoint was written under other settings; `difference` says which, for a sentence."""

    difference = ""


UNREADABLE = (Damaged,)
"""What reading a damaged file raises. A file that only cannot be read now or here raises a `GossamerError`."""


def path_of(directory: Path, round: int) -> Path:
    """Where the checkpoint of `round` lies."""
    return directory / f"round-{round:09d}.ckpt"


def rounds_in(directory: Path) -> list[int]:
    """The rounds whose checkpoints lie in `directory`, ascending."""
    return sorted(int(m[1]) for name in _names_in(directory) if (m := _NAME.fullmatch(name)))


def write(directory: Path, round: int, settings: dict[str, Any], content: dict[str, Any]) -> Path:
    """Write the checkpoint of `round`. NumPy's numbers become Python's; what `read` would refuse is refused here."""
    path = path_of(directory, round)
    saved = {"round": round, "settings": plain(settings, "settings"), "content": plain(content)}
    with replacing(path) as temporary:
        try:
            with temporary.open("wb") as file:
                torch.save(saved, file)
        except RuntimeError as error:
            # torch says nothing of why a file could not be written, but was told so by the file.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        with temporary.open("rb") as file:
            digest, _ = _digests(file, temporary.stat().st_size)
        with temporary.open("ab") as file:
            file.write(digest)
    return path


def read(path: Path) -> dict[str, Any]:
    """The round, settings and content of a checkpoint, on the CPU; raises one of `UNREADABLE` if it is damaged."""
    with _readable(path), path.open("rb") as file:
        return _checked(file, path.stat().st_size)


def settings_of(path: Path) -> dict[str, Any] | None:
    """The settings of a checkpoint, at little cost: its digest is not checked. None where they cannot be read."""
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        settings = saved["settings"]
    except Exception:
        # There is no saying what torch raises at bytes that may be anything.
        return None
    return settings if isinstance(settings, dict) else None


def to_bytes(path: Path) -> bytes:
    """A file as it is, for another node."""
    with _readable(path):
        return path.read_bytes()


def from_bytes(data: bytes) -> dict[str, Any]:
    """What `read` gives, from the bytes of a file."""
    with _readable("that another node has sent"):
        return _checked(io.BytesIO(data), len(data))


def set_aside(path: Path) -> Path:
    """Take a damaged file out of the way, under another name."""
    aside = path.with_name(f"{path.name}.damaged")
    try:
        return path.replace(aside)
    except OSError as error:
        raise cannot_write(aside, error) from error


def keep_aside(path: Path) -> Path:
    """Take a file of another run out of the way, under a name that nothing has yet."""
    names = (f"{path.name}.other{number}" for number in itertools.chain([""], itertools.count(2)))
    aside = next(free for name in names if not (free := path.with_name(name)).exists())
    try:
        return path.replace(aside)
    except OSError as error:
        raise cannot_write(aside, error) from error


def remove_unfinished(directory: Path) -> None:
    """Remove what a process left that was killed while it wrote. Nobody else may be writing here."""
    for name in _names_in(directory):
        if _UNFINISHED.fullmatch(name):
            (directory / name).unlink(missing_ok=True)


def difference(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """The first of our settings that is another one in theirs, in words; empty if there is none."""
    for key, value in ours.items():
        if theirs.get(key) != value:
            return f"its {key} is {said(theirs.get(key), repr)}, this run's is {said(value, repr)}"
    return ""


def refuse_foreign(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise `Foreign` if a checkpoint was written under other settings than ours."""
    if different := difference(theirs, ours):
        error = Foreign(
            f"The checkpoint {path} belongs to another run: {different}; choose another directory, or go on with the "
            f"settings it was made with."
        )
        error.difference = different
        raise error


def _names_in(directory: Path) -> list[str]:
    """The names of the files there; a directory that cannot be looked into is not taken for an empty one."""
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(
            f"Cannot look for checkpoints in {directory}: {error.strerror or error}; make it readable and start again."
        ) from error


@contextmanager
def _readable(path: Path | str) -> Iterator[None]:
    """Sentences for a checkpoint that is not damaged and yet cannot be read."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise InputError(
            f"The checkpoint {path} holds an object that is more than tensors, numbers and words, and is not read "
            f"because that could run code ({_first_line(error)}); move it away, or allow the object with "
            f"torch.serialization.add_safe_globals if you know where it comes from."
        ) from error
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise InputError(
            f"Cannot read the checkpoint {path}: {reason}; it is left as it is: make it readable and start again, or "
            f"move it away to go on without it."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _checked(file: BinaryIO, size: int) -> dict[str, Any]:
    computed, written = _digests(file, size - _DIGEST)
    if computed != written:
        raise Damaged("its content does not match its digest")
    file.seek(0)
    saved: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return saved


def _digests(file: BinaryIO, left: int) -> tuple[bytes, bytes]:
    """The digest of the first `left` bytes, and the bytes after them. torch itself does not notice a flipped bit."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.digest(), file.read()
