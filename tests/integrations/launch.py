"""Four processes as torchrun starts them, forked from one that has imported the trainer: they begin at once.

A program makes all runs with one trainer, because the import takes long: `python -m tests.integrations.NAME DIRECTORY`.
"""

import gc
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.optim import DecentralizedOptimizer
from tests.optim.nodes import _save_coverage
from tests.optim.tasks import flat

N = 4


def made_by(program: str, out: Path) -> dict[str, Any]:
    """What the runs of a program returned, by name, and what it printed."""
    command = [sys.executable, "-m", f"tests.integrations.{program}", str(out)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stderr
    return {"printed": done.stdout, **torch.load(out / "results.pt", weights_only=True)}


def plain_steps(
    model: nn.Module, optimizer: DecentralizedOptimizer, schedule: Any, losses: Iterable[Tensor], clip: float | None
) -> Tensor:
    """The model after every step of a loop without a trainer."""
    trace = []
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
        trace.append(flat(model))
    optimizer.close()
    return torch.stack(trace)


def launch(place: Path, work: Callable[..., Any], *args: Any, timeout: float = 240.0) -> list[Any]:
    """What `work(rank, *args)` returned in N processes; the error's type and sentence, or the signal that ended it."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    place = place / f"{work.__name__}-{port}"
    place.mkdir()
    gc.freeze()  # the children need not look through what was imported
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
        # Rank 0 keeps the meeting point, which under torchrun outlives every node.
        while rank == 0 and isinstance(result, dict) and len(list(place.glob("*.pt"))) < N:
            time.sleep(0.02)
        output.flush()
        _save_coverage()
        os._exit(0)
