"""Processes forked from one that has imported torch: they start at once, where a fresh one needs seconds."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.forked"])


def start(output: Path, work: Callable[..., Any], *args: Any, **environment: object) -> BaseProcess:
    """Begin `work(*args)` in a process of its own; what it prints goes to the file `output`."""
    process = _context.Process(target=_main, args=(output, Path.cwd(), environment, work, args))
    process.start()
    return process


def _main(output: Path, place: Path, environment: dict[str, object], work: Callable[..., Any], args: Any) -> None:
    torch.set_num_threads(1)  # the tests run side by side
    os.chdir(place)
    os.environ.update({name: str(value) for name, value in environment.items()})
    with output.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    work(*args)


@contextmanager
def nodes(n: int, out: Path, work: Callable[..., Any], *args: Any) -> Iterator[list[BaseProcess]]:
    """Begin `work(*args)` in n processes that find what torchrun would tell them; rank k prints to `out/k.out`."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    told = {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n,
            "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCHELASTIC_ERROR_FILE": out / "k" / "error.json"}  # fmt: skip
    processes = [start(out / f"{rank}.out", work, *args, **told, RANK=rank, LOCAL_RANK=rank) for rank in range(n)]
    try:
        yield processes
        for process in processes:
            process.join(100)
    finally:
        for process in processes:
            process.kill()


def run_nodes(n: int, out: Path, work: Callable[..., Any], *args: Any) -> list[str]:
    """What `work(*args)` prints in each of n such processes, all of which must end well."""
    with nodes(n, out, work, *args) as processes:
        pass
    printed = [(out / f"{rank}.out").read_text(encoding="utf-8") for rank in range(n)]
    assert [process.exitcode for process in processes] == [0] * n, printed
    return printed
