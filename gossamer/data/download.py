"""Download a file over HTTP: checksum, progress, resume after a broken connection or a kill, atomic rename."""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TimeRemainingColumn, TransferSpeedColumn

from gossamer._version import __version__
from gossamer.data.readers import has_checksum
from gossamer.errors import PeerError

OnProgress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes received so far and the bytes in total (None while unknown)."""

_CHUNK = 1 << 17
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EISDIR, errno.EIO}


def fetch(
    addresses: Sequence[str],
    target: Path,
    checksum: str,
    on_progress: OnProgress | None = None,
    *,
    attempts: int = 3,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Bring the file with this `checksum` ("algorithm:hexadecimal") to `target` and return `target`.

    Bytes are collected in `target` + ".part", which survives a broken connection or a stopped process and is continued
    by the next attempt or the next call; `target` appears, or is replaced, only when the checksum is right. The
    addresses are tried in turn, and the download gives up after `attempts` tries that brought nothing new. A disk that
    cannot be written is an `OSError` at once.
    """

    def report(done: int, total: int | None) -> None:
        if on_progress is not None:
            on_progress(target.name, done, total)

    part = target.with_name(target.name + ".part")
    trouble, furthest, idle = "", _size(part), 0
    while idle < attempts:
        for address in addresses:
            try:
                _receive(address, part, report, timeout)
            except (OSError, HTTPException) as error:
                if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                    raise
                trouble = f"{address}: {error or type(error).__name__}"
                continue
            if has_checksum(part, checksum):
                part.replace(target)
                return target
            part.unlink()
            trouble = f"{address} delivered a file with another checksum than the official one"
        idle = 0 if _size(part) > furthest else idle + 1
        furthest = max(furthest, _size(part))
        if idle < attempts:
            time.sleep(pause)
    kept = f"; the {_size(part):,} bytes received so far are kept, and the next try continues there"
    raise PeerError(
        f"Cannot download {target.name} ({trouble}){kept if part.exists() else ''}. Check the connection and try again."
    )


def _receive(address: str, part: Path, on_progress: Callable[[int, int | None], None], timeout: float) -> None:
    """Append to `part` what is missing; returns when the server reports that the file is complete."""
    done = _size(part)
    headers = {"User-Agent": f"gossamer/{__version__}"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(Request(address, headers=headers), timeout=timeout)
    except HTTPError as error:
        with error:
            if error.code == _RANGE_NOT_SATISFIABLE:
                return  # nothing is left to send; the checksum decides whether `part` is the file
            raise OSError(f"the server answered {error.code} {error.reason}") from error
    with response:
        if response.status != _PARTIAL_CONTENT:
            done = 0  # the server ignored the range and sends everything
        elif _range_start(response.headers["Content-Range"]) != done:
            part.unlink()
            raise OSError("the server continued at another byte than asked")
        length = response.headers["Content-Length"]
        total = done + int(length) if length is not None else None
        with part.open("ab" if done else "wb") as file:
            on_progress(done, total)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                on_progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection was closed after {done:,} of {total:,} bytes")


def _range_start(header: str | None) -> int | None:
    match = re.match(r"bytes (\d+)-", header or "")
    return int(match[1]) if match else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def only_one_process(folder: Path) -> Iterator[None]:
    """Let one process at a time download into `folder`; the others wait, and then find the files there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: the checksum still protects the result
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[OnProgress]:
    """A bar per file on standard error; nothing when that is not a terminal."""
    console = console or Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def on_progress(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield on_progress
