"""Files that are either the old ones or the new ones, never half-written."""

import errno
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any

from gossamer.errors import DiskError, GossamerError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there takes the place of `path` when the block ends well."""
    temporary = path.parent / f".{path.name}.{token_hex(8)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if temporary.exists():
            temporary.unlink()


def check_writable(path: Path) -> None:
    """Make the directory of `path` and refuse a place where it cannot be written: before the work it is to hold."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def cannot_write(path: Path, error: OSError) -> GossamerError:
    """The sentence for a place where `path` cannot be written."""
    reason = error.strerror or str(error)
    if path.parent.is_file():
        reason = f"{path.parent} is a file, not a directory"
    return DiskError(f"Cannot write {path}: {reason}; choose another place or make room there.")


def without_infinities(value: Any) -> Any:
    """The same nest of dicts and lists, with None for what is not a finite number: JSON has no word for it."""
    if isinstance(value, dict):
        return {k: without_infinities(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinities(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
