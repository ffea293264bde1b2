"""What a run was made with: versions, threads, commit, and the kind of machine, but not whose machine."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from gossamer._version import __version__


def environment() -> dict[str, Any]:
    """Versions, thread count, git commit of the working directory, and machine facts without host names."""
    import numpy
    import torch

    return {
        "gossamer": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


@cache
def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


@cache
def _commit() -> str | None:
    """The git commit of the working directory, marked with + if files differ from it; None without git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=5)
    return done.stdout.strip()
