"""Who makes which run: a lock per run, held while it is made.

The kernel drops a lock when its process ends, however it ends, so a claim never outlives its holder. A claim is a file
in `.claims` beside the runs that holds the process id of its holder and the name of its sweep. On a cluster the shared
file system must know flock (NFS 4 does; Lustre when mounted with it).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gossamer.errors import InputError

_FOLDER = ".claims"

SWEEP = "GOSSAMER_SWEEP"
"""The variable by which a sweep's processes know that they belong together."""


@contextmanager
def claim(directory: Path, name: str) -> Iterator[bool]:
    """Whether the run `name` is ours alone inside this block; does not wait for anyone.

    A run at which another process of the same sweep died is left to the sweep, which marks it as failed.
    """
    path = _path(directory, name)
    descriptor = _lock(path)
    if descriptor is None:
        yield False
        return
    sweep = os.environ.get(SWEEP, "")
    process, _, theirs = os.pread(descriptor, 100, 0).decode(errors="replace").partition(" ")
    if sweep and sweep == theirs and process != str(os.getpid()):
        os.close(descriptor)
        yield False
        return
    try:
        with suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {sweep}".encode(), 0)
        yield True
    finally:
        # While still locked: whoever opened the file before and locks it after will see that it is gone.
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Claim the run in this directory, or refuse: two processes that make one run would undo each other's figures."""
    with claim(run.parent, run.name) as ours:
        if not ours:
            process = holder(run.parent, run.name)
            raise InputError(
                f"{run} is being made by another process ({process}); wait for it to end, or choose another directory."
            )
        yield


def holder(directory: Path, name: str) -> int | None:
    """The process that holds or held the claim, if it was not given back."""
    try:
        return int(_path(directory, name).read_text().partition(" ")[0])
    except (OSError, ValueError):
        return None


def is_claimed(directory: Path, name: str) -> bool:
    """Whether someone is or was making the run when last seen: a hint, not a lock."""
    return _path(directory, name).exists()


def _path(directory: Path, name: str) -> Path:
    return directory / _FOLDER / name


def _lock(path: Path) -> int | None:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"Cannot write {path}: {error.strerror}; choose another directory.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise InputError(
                f"Cannot lock {path}: {error.strerror}; runs are shared out by locks, so choose a directory on a file "
                f"system that knows flock."
            ) from error
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path still names the file that was locked, not one that another holder made after removing it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
