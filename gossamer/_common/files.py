"""Files that are written atomically: a reader sees the old content or the new one, never a part."""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any

from gossamer.errors import DiskError, InputError

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


@contextmanager
def replacing(path: Path, make_directory: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there replaces `path` when the block ends without an error.

    Without `make_directory` the directory must be there: one that a run uses is not made again if it was removed. A
    device such as /dev/null is refused: the file would take its place.
    """
    temporary = path.parent / f".{path.name}.{token_hex(8)}.tmp"
    try:
        _refuse_device(path)
        if make_directory:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.parent.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if not make_directory and not path.parent.exists():
            raise _removed(path.parent, error) from error
        raise cannot_write(path, error) from error
    finally:
        if temporary.exists():
            temporary.unlink()


def remove_unfinished_files(directory: Path) -> None:
    """Remove the temporary files that a killed process has left in `directory`. No other may be writing there."""
    for path in directory.glob(".*.tmp") if directory.is_dir() else ():
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Make the directory of `path` and refuse, before any work is done, a place where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _refuse_device(path)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def _refuse_device(path: Path) -> None:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")


def read_text(path: Path | str) -> str:
    """A text file in UTF-8, with or without a byte order mark."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DiskError(f"There is no file {path}; correct its path.") from None
    except OSError as error:
        raise DiskError(f"Cannot read {path}: {error.strerror or error}.") from error
    except UnicodeError:
        raise InputError(f"{path} is not a text file in UTF-8; save it as such.") from None


def write_text(path: Path, text: str, make_directory: bool = True) -> None:
    """Write a text file in one piece; see `replacing`."""
    with replacing(path, make_directory) as temporary:
        temporary.write_text(text, encoding="utf-8")


def cannot_write(path: Path, error: OSError) -> DiskError:
    """The error for a `path` that cannot be written, with the errno of its cause."""
    reason = error.strerror or str(error)
    if path.parent.is_file():
        reason = f"{path.parent} is a file, not a directory"
    made = DiskError(f"Cannot write {path}: {reason}; choose another place or make room there.")
    made.errno = error.errno
    return made


def _removed(directory: Path, error: OSError) -> DiskError:
    """The error for a directory that was there before."""
    made = DiskError(
        f"The directory {directory} has been removed while the run was using it; put it back if you can, and start "
        f"again: a new one would hold only a part of the run."
    )
    made.errno = error.errno
    return made


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON of plain values and dataclasses. What is not a finite number becomes null, because JSON has no such number.

    >>> to_json({"loss": [0.5, float("nan")]})
    '{"loss": [0.5, null]}'
    """
    finite = json.loads(json.dumps(value, default=asdict), parse_constant=lambda name: None)
    return json.dumps(finite, indent=indent)
