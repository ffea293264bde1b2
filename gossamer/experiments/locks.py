"""Which process makes which run: a lock per run, held while it is made.

The kernel releases a lock when its process ends, however it ends, so a claim never outlives its holder. A claim is a
locked file in `.claims` beside the runs; it contains the process id of its holder and the name of its sweep. On a
cluster the shared file system must support flock (NFS 4 does; Lustre when mounted with it).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gossamer.errors import DiskError, InputError

_FOLDER = ".claims"

SWEEP = "GOSSAMER_SWEEP"
"""The environment variable that names the sweep to which a process belongs."""


@contextmanager
def claim(directory: Path, name: str) -> Iterator[bool]:
    """Whether the run `name` belongs to this process alone inside this block; never waits.

    A run during which another process of the same sweep died is left to the sweep, which marks it as failed.
    """
    path = _path(directory, name)
    # Without flock there is no lock that ends with its process, so there must be no fallback.
    lock = FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        raise DiskError(
            f"Cannot write {path}: {error.strerror}; choose a writable directory on a file system with flock."
        ) from error
    sweep = os.environ.get(SWEEP, "")
    process, _, theirs = path.read_text(errors="replace").partition(" ")
    if sweep and sweep == theirs and process != str(os.getpid()):
        lock.release()
        yield False
        return
    try:
        with suppress(OSError):  # a full disk: the lock holds all the same
            path.write_text(f"{os.getpid()} {sweep}")
        yield True
    finally:
        # While still locked: a process that opened the file before and locks it afterwards sees that it is gone.
        path.unlink(missing_ok=True)
        lock.release()


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Claim the run in this directory, or refuse: two processes in one run would overwrite each other's files."""
    with claim(run.parent, run.name) as ours:
        if not ours:
            process = holder(run.parent, run.name)
            raise InputError(
                f"{run} is being made by another process ({process}); wait for it to end, or choose another directory."
            )
        yield


def holder(directory: Path, name: str) -> int | None:
    """The process that holds the claim, or that ended without releasing it."""
    try:
        return int(_path(directory, name).read_text().partition(" ")[0])
    except (OSError, ValueError):
        return None


def is_claimed(directory: Path, name: str) -> bool:
    """Whether the run has been claimed, perhaps by a process that is gone: a hint, not a lock."""
    return _path(directory, name).exists()


def _path(directory: Path, name: str) -> Path:
    return directory / _FOLDER / name
