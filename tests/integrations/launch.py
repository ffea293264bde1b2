"""Four processes as torchrun starts them, forked from one that has imported the trainer: they begin at once."""

import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.optim.nodes import _save_coverage

N = 4


def launch(place: Path, work: Callable[..., Any], *args: Any, timeout: float = 240.0) -> list[Any]:
    """What `work(rank, *args)` returned in N processes; the error's type and sentence, or the signal that ended it."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    place = place / f"{work.__name__}-{port}"
    place.mkdir()
    processes = [context.Process(target=_main, args=(rank, port, place, work, args)) for rank in range(N)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
        process.kill()
        process.join()
    files = [place / f"{rank}.pt" for rank in range(N)]
    for rank in range(N):
        print(f"{work.__name__}, rank {rank}: {processes[rank].exitcode}", (place / f"{rank}.out").read_text())
    return [
        torch.load(file, weights_only=True) if file.exists() else f"signal {-(process.exitcode or 0)}"
        for file, process in zip(files, processes, strict=True)
    ]


def _main(rank: int, port: int, place: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    with (place / f"{rank}.out").open("w") as output:
        sys.stdout = sys.stderr = output
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(N), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(N), MASTER_ADDR="localhost",
            MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="test", OMP_NUM_THREADS="1",
        )  # fmt: skip
        try:
            result = work(rank, *args)
        except Exception as error:
            traceback.print_exc()
            result = f"{type(error).__name__}: {error}"
        torch.save(result, place / f"{rank}.tmp")
        (place / f"{rank}.tmp").rename(place / f"{rank}.pt")
        output.flush()
        _save_coverage()
        os._exit(0)
