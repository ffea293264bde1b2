"""How kernels are compiled, and where the compiled code is kept."""

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}

inner = numba.njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Compile a function that is called from compiled ones only."""


inlined = numba.njit(**_OPTIONS, inline="always")
"""Compile a function as a part of those that call it."""


def entry(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, with all that it calls, once for all processes."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_directory() / sources())  # numba reads it in the next line
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before


@cache
def cache_directory() -> Path:
    """Where compiled kernels are kept: a directory that only the user can write, since its files are run.

    If there can be none (a read-only home, another owner), it is a temporary one of this process.
    """
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    own = root / "gossamer" / "kernels"
    try:
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        if sys.platform != "win32":
            if own.is_symlink() or own.stat().st_uid != os.getuid():
                raise PermissionError
            if stat.S_IMODE(own.stat().st_mode) != 0o700:
                own.chmod(0o700)
        with tempfile.TemporaryFile(dir=own):
            pass
    except OSError:
        own = Path(tempfile.mkdtemp(prefix="gossamer-kernels-"))
    return own


@cache
def sources() -> str:
    """A digest of the kernels' sources: numba's cache notices a change of the entry's own file alone."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
