"""Trains under torchrun; in each attempt but the last, one of the nodes is killed at some moment.

torchrun --nproc-per-node 3 --max-restarts 9 --module tests.optim.restart_script <directory> <rounds> <kills>

`kills` is a JSON list with one [node, round, moment] for each attempt.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

from gossamer._common import checkpoint_file as checkpoint_files
from tests.optim.restarts import MAKERS, graph_for
from tests.optim.sites import Site

SITES = ("bonn", "oslo", "rome")


def kill(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_half_way(content: Any, file: BinaryIO) -> None:
    file.write(b"half a checkpoint")
    file.flush()
    kill()


def kill_soon() -> None:
    def later() -> None:
        time.sleep(0.003)
        kill()

    threading.Thread(target=later).start()


def main(directory: Path, rounds: int, kills: list[tuple[str, int, str]]) -> None:
    attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
    # As if torchrun had dealt the ranks again, which it does when there are several machines.
    sites = SITES[: int(os.environ["WORLD_SIZE"])]
    name = sites[(rank + attempt) % len(sites)]
    os.environ["GOSSAMER_NODE"] = name
    victim, round, moment = kills[attempt] if attempt < len(kills) else ("", 0, "")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    site = Site(directory, graph_for("MomentumTracking", sites), MAKERS["MomentumTracking"])
    if name == victim and moment == "start":
        kill()

    def before(r: int) -> None:
        time.sleep(0.002)
        if (name, r) == (victim, round):
            actions = {"step": kill, "any": kill_soon}
            if moment == "save":
                checkpoint_files.torch.save = kill_half_way  # type: ignore[assignment]
            else:
                actions[moment]()

    result = site.train(rounds, before)
    torch.save(result, directory / f"result-{name}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
