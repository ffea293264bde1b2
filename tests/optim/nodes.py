"""Start real processes on this machine, one per node, joined by gloo over loopback."""

import multiprocessing
import os
import runpy
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gossamer.network import agreement

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.forked"])


@dataclass
class Outcome:
    """How a process ended."""

    value: Any = None
    error: str = ""
    """The last line of the traceback: type and sentence."""
    code: int | None = None


def run(n: int, work: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Outcome]:
    """`work(rank, *args)` in n processes; a process that has not ended after `timeout` seconds is a failure."""
    with tempfile.TemporaryDirectory() as directory:
        processes = [_context.Process(target=_main, args=(rank, n, directory, work, args)) for rank in range(n)]
        for process in processes:
            process.start()
        deadline = time.monotonic() + timeout
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        hanging = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for rank in hanging:
            processes[rank].kill()
            processes[rank].join()
        outcomes = [_read(Path(directory, f"{rank}.pt"), process.exitcode) for rank, process in enumerate(processes)]
        assert not hanging, f"ranks {hanging} hang after {timeout} s; the others: {[o.error for o in outcomes]}"
        return outcomes


def values(n: int, work: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
    """What `work(rank, *args)` returned in n processes, all of which must end well."""
    outcomes = run(n, work, *args, timeout=timeout)
    assert [o.code for o in outcomes] == [0] * n, [o.error or o.code for o in outcomes]
    return [o.value for o in outcomes]


def run_script(path: Path, environments: list[dict[str, str]], timeout: float = 200.0) -> list[Outcome]:
    """A script once per environment, each in a process of its own; `value` is what it printed."""
    outputs = [path.with_suffix(f".{k}.out") for k in range(len(environments))]
    processes = [
        _context.Process(target=_script, args=(path, environment, output))
        for environment, output in zip(environments, outputs, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        deadline = time.monotonic() + timeout
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [Outcome(o.read_text("utf-8"), code=p.exitcode) for p, o in zip(processes, outputs, strict=True)]


def _script(path: Path, environment: dict[str, str], output: Path) -> None:
    os.environ.update(environment)
    os.chdir(path.parent)
    torch.set_num_threads(1)
    with output.open("w", encoding="utf-8", buffering=1) as file:
        sys.stdout = sys.stderr = file
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runpy.run_path(str(path), run_name="__main__")


def _read(path: Path, code: int | None) -> Outcome:
    return Outcome(**torch.load(path, weights_only=True), code=code) if path.exists() else Outcome(code=code)


def _main(rank: int, n: int, directory: str, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    agreement._POLL = 0.02  # the nodes of a test are never far apart
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(n))
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=n, timeout=timedelta(seconds=30)
    )
    result: dict[str, Any] = {}
    try:
        result["value"] = work(rank, *args)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
        raise SystemExit(1) from error
    finally:
        temporary = Path(directory, f"{rank}.tmp")
        torch.save(result, temporary)
        temporary.rename(Path(directory, f"{rank}.pt"))
        _save_coverage()


def _save_coverage() -> None:
    """A forked process ends without coverage's own exit hook."""
    if "coverage" not in sys.modules:
        return  # it is not measured, and the import takes a quarter of a second
    current = sys.modules["coverage"].Coverage.current()
    if current is not None:
        current.stop()
        current.save()
