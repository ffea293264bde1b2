"""Checkpoint files: named by their round, written atomically, and read without running any code in them.

A file carries the settings of its run, so that another run does not continue from it, and ends in a digest, so that
damage is noticed. It holds tensors, numbers, strings and collections of them: torch writes any object, but refuses to
read most of them back.
"""

import hashlib
import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from gossamer._common.files import cannot_write, replacing
from gossamer._common.formatting import said
from gossamer.errors import DiskError, GossamerError, InputError

_NAME = re.compile(r"round-(\d{9})\.ckpt")
_UNFINISHED = re.compile(r"\.round-\d{9}\.ckpt\.[0-9a-f]+\.tmp")
_DIGEST = 32
_PLAIN = (bool, float, str, bytes, type(None), Tensor, nn.Parameter)


class Damaged(ValueError):
    """The content of a checkpoint does not match its digest, because it was changed after it was written, or is none.

    A file that merely cannot be read now or here raises a `GossamerError`.
    """


def path_of(directory: Path, round: int) -> Path:
    """The path of the checkpoint of `round`."""
    return directory / f"round-{round:09d}.ckpt"


def rounds_in(directory: Path) -> list[int]:
    """The rounds whose checkpoints are in `directory`, ascending."""
    return sorted(int(m[1]) for name in _names_in(directory) if (m := _NAME.fullmatch(name)))


def first_not_finite(value: Any, infinity: bool = False) -> float | None:
    """The first number that is not finite in tensors, in dicts, lists and tuples of them; None if all are.

    With `infinity` only NaN counts: buffers may hold infinite numbers on purpose, as masks of attention do.

    >>> first_not_finite({"x": [torch.ones(2), torch.tensor([1, 2])]}), first_not_finite((torch.tensor(torch.nan),))
    (None, nan)
    >>> mask = torch.tensor([0.0, -torch.inf])
    >>> first_not_finite(mask), first_not_finite(mask, infinity=True)
    (-inf, None)
    """
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            return None
        bad = value.isnan() if infinity else ~value.isfinite()
        return float(value[bad].flatten()[0]) if bad.any() else None
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((found for part in parts if (found := first_not_finite(part, infinity)) is not None), None)


def write(
    directory: Path, round: int, settings: dict[str, Any], content: dict[str, Any], make_directory: bool = True
) -> Path:
    """Write the checkpoint of `round`. NumPy's numbers become Python's; what `read` refuses is refused here.

    Without `make_directory` the directory must be there.
    """
    path = path_of(directory, round)
    saved = {"round": round, "settings": plain(settings, "settings"), "content": plain(content)}
    with replacing(path, make_directory) as temporary:
        try:
            with temporary.open("wb") as file:
                torch.save(saved, file)
        except RuntimeError as error:
            # torch does not say why a file could not be written, but the error of the file is its context.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        with temporary.open("rb") as file:
            digest, _ = _digests(file, temporary.stat().st_size)
        with temporary.open("ab") as file:
            file.write(digest)
    return path


def read(path: Path) -> dict[str, Any]:
    """The round, settings and content of a checkpoint, on the CPU; raises `Damaged` if it is damaged."""
    with _readable(path), path.open("rb") as file:
        return _checked(file, path.stat().st_size)


def settings_of(path: Path) -> dict[str, Any] | None:
    """The settings of a checkpoint, at little cost: its digest is not checked. None where they cannot be read."""
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        settings = saved["settings"]
    except Exception:
        # torch may raise anything for arbitrary bytes.
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


def pack(content: dict[str, Any]) -> bytes:
    """Tensors, numbers and strings as bytes, for another node.

    >>> unpack(pack({"lr": np.float64(0.5)}))
    {'lr': 0.5}
    """
    file = io.BytesIO()
    torch.save(plain(content), file)
    return file.getvalue()


def unpack(data: bytes) -> dict[str, Any]:
    """What `pack` was given."""
    with _readable("that another node has sent"):
        content: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        return content


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that it is no longer taken for a checkpoint."""
    aside = path.with_name(f"{path.name}.damaged")
    try:
        return path.replace(aside)
    except OSError as error:
        raise cannot_write(aside, error) from error


def remove_unfinished_checkpoints(directory: Path) -> None:
    """Remove the checkpoints that a killed process was writing, and nothing else. No other may be writing there."""
    for name in _names_in(directory):
        if _UNFINISHED.fullmatch(name):
            (directory / name).unlink(missing_ok=True)


def refuse_foreign(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse a checkpoint whose settings, as far as we have them, are not ours; the first difference is named."""
    for key, value in ours.items():
        with taking_over(path):  # what is compared with may be anything
            differs = bool(theirs.get(key) != value)
        if differs:
            raise InputError(
                f"The checkpoint {path} belongs to another run: its {key} is {said(theirs.get(key), repr)}, this run's "
                f"is {said(value, repr)}; choose another directory, or use the settings it was made with."
            )


@contextmanager
def taking_over(path: Path | str) -> Iterator[None]:
    """Around the code that takes over the content of a file: one that was not written by a run like this is refused.

    The digest only shows that a file is as it was written. What others have written can hold anything.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        if isinstance(error, GossamerError):
            raise
        raise InputError(
            f"The checkpoint {path} does not hold what this run needs ({type(error).__name__}: {_first_line(error)}); "
            f"it was written by another program or version: move it away."
        ) from error


def _names_in(directory: Path) -> list[str]:
    """The names of the files there; a directory that cannot be listed is not taken for an empty one."""
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DiskError(
            f"Cannot look for checkpoints in {directory}: {error.strerror or error}; make it readable and start again."
        ) from error


@contextmanager
def _readable(path: Path | str) -> Iterator[None]:
    """Errors for a checkpoint that is not damaged and yet cannot be read."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise InputError(
            f"The checkpoint {path} holds an object that is more than tensors, numbers and strings, and is not read "
            f"because that could run code ({_first_line(error)}); move it away, or allow the object with "
            f"torch.serialization.add_safe_globals if you know where it comes from."
        ) from error
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, EOFError) as error:
        if isinstance(error, GossamerError | Damaged):
            raise
        # torch may raise any of these for bytes that it has not written, and some where a disk fails.
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise DiskError(
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
    saved = torch.load(file, map_location="cpu", weights_only=True)
    for key, kind in (("round", int), ("settings", dict), ("content", dict)):
        if not isinstance(saved, dict) or not isinstance(saved.get(key), kind):
            raise Damaged(f"it holds no {key}")
    return dict(saved)


def _digests(file: BinaryIO, left: int) -> tuple[bytes, bytes]:
    """The digest of the first `left` bytes, and the bytes after them. torch itself does not notice a flipped bit."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.digest(), file.read()


def plain(value: Any, where: str = "") -> Any:
    """The value with NumPy's numbers as Python's; an object that could not be read back is refused, with its place.

    >>> plain({"lr": np.float64(0.1), "steps": [np.int64(3)]})
    {'lr': 0.1, 'steps': [3]}
    >>> plain({"extra": {"loader": {"seeds": np.arange(3)}}})
    Traceback (most recent call last):
    ...
    gossamer.errors.InputError: extra['loader']['seeds'] is a numpy.ndarray, which a checkpoint cannot hold: ...
    """
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if kind in _PLAIN or (kind is int and value.bit_length() < 1024):
        return value
    if kind is list or kind is tuple:
        items = [plain(v, f"{where}[{k}]") for k, v in enumerate(value)]
        return value if _same(items, value) else kind(items)
    if kind is dict or kind is OrderedDict:
        keys = [plain(key, f"a key of {where}") for key in value]
        items = [plain(v, f"{where}[{k!r}]" if where else str(k)) for k, v in zip(keys, value.values(), strict=True)]
        if _same(keys, value) and _same(items, value.values()):
            return value
        made = kind(zip(keys, items, strict=True))
        if kind is OrderedDict:
            vars(made).update(vars(value))  # where a state_dict keeps the versions of its modules
        return made
    _refuse_unreadable(value, where)
    return value


def _same(made: list[Any], given: Any) -> bool:
    return all(a is b for a, b in zip(made, given, strict=True))


def _refuse_unreadable(value: object, where: str) -> None:
    file = io.BytesIO()
    try:
        torch.save(value, file)
        torch.load(io.BytesIO(file.getvalue()), map_location="cpu", weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as error:
        kind = type(value)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        raise InputError(
            f"{where} is a {name}, which a checkpoint cannot hold: it could not be read back without running code; "
            f"save it as tensors, numbers, strings, lists and dicts of them."
        ) from error
