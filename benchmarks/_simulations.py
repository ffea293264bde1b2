"""Shared by the benchmarks of the simulator: the settings, their simulations, and tasks in processes of their own."""

import json
import os
import subprocess
import sys
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _measurements import options_of
from torch import nn

from gossamer import MomentumTracking, models, topology
from gossamer.data import Augmentation, Dataset, Normalization, partition
from gossamer.engine.hardware import Workers
from gossamer.engine.schedule import step_size_of
from gossamer.engine.simulation import Settings, Simulation

LR, BETA, WEIGHT_DECAY = 0.001, 0.9, 1e-3
PAUSE = 0.02
"""Seconds before each measurement: OpenMP's threads spin for a few milliseconds after their work is done."""


class WideLeNet(nn.Sequential):
    """LeNet with 32 and 64 channels."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(
            nn.Conv2d(shape[0], 32, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 32),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 64),
            nn.Flatten(),
            nn.Linear(64 * 25, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, classes),
        )


@dataclass(frozen=True)
class Case:
    """A simulation, and the limit of its round over one plain training step on the same samples.

    `full` adds a real pipeline: images of bytes, normalization, augmentation and a log.
    """

    title: str
    model: Callable[..., nn.Module]
    shape: tuple[int, int, int]
    nodes: int
    batch: int
    limit: float = 0.0
    full: bool = False

    @property
    def in_a_row(self) -> int:
        """Rounds that are measured together: those of the larger cases are long enough alone."""
        return 1 if self.nodes > 100 or self.model is WideLeNet else 4


CASES = {
    "a": Case("LeNet 1x28x28", models.LeNet, (1, 28, 28), 8, 100, 0.40),
    "b": Case("LeNet 3x32x32", models.LeNet, (3, 32, 32), 8, 100, 0.40),
    "c": Case("LeNet 32/64 channels, 3x32x32", WideLeNet, (3, 32, 32), 8, 100, 1.02),
    "d": Case("LeNet 1x28x28, small batches", models.LeNet, (1, 28, 28), 512, 16, 0.55),
    "e": Case("(a) with data, augmentation, logging", models.LeNet, (1, 28, 28), 8, 100, 0.42, full=True),
    "i": Case("SmallCNN 1x8x8", models.SmallCNN, (1, 8, 8), 8, 32, 0.40),
}


def simulation(case: Case, workers: Workers, batches: int = 4) -> Simulation:
    """A simulation whose nodes hold `batches` batches each; without `full`, fetching one indexes a float tensor."""
    total = batches * case.nodes * case.batch
    generator = torch.Generator().manual_seed(0)
    if case.full:
        inputs = torch.randint(0, 256, (total, *case.shape), dtype=torch.uint8, generator=generator)
    else:
        inputs = torch.rand(total, *case.shape, generator=generator)
    dataset = Dataset.from_tensors(
        inputs,
        torch.arange(total) % 10,
        normalization=Normalization(),
        augmentation=Augmentation(padding=4) if case.full else None,
    )
    data = dataset.split(partition.iid(nodes=case.nodes), holdout=0)
    graph = topology.ring(case.nodes) if case.nodes < 100 else topology.random_regular(case.nodes, 4)
    settings = Settings(step_size=step_size_of(LR, 1, 1), batch_size=case.batch, weight_decay=WEIGHT_DECAY)
    torch.manual_seed(0)
    return Simulation(case.model(case.shape, 10), data, MomentumTracking(BETA), graph, settings, workers)


def seconds(one: Callable[[], object], times: int = 1) -> float:
    """How long a call takes, on average over several in a row, after a pause and a call that does not count.

    Rounds of training follow each other: without that call, what is measured is also how long threads take to wake up.
    """
    time.sleep(PAUSE)
    one()
    began = time.perf_counter()
    for _ in range(times):
        one()
    return (time.perf_counter() - began) / times


def _warn_of_other_work() -> None:
    """Print a line if the machine is busy: OpenMP's threads wait for each other, so torch suffers more than we do."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"Other work is running (load {load:.1f}), so the ratios are not those of an idle machine.")


def private_memory() -> int:
    """Private memory of this process in bytes."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(r.split()[1]) * 1024 for r in rows if r.startswith("Private_"))


class Child:
    """The running script in another process, which does one task per request and answers in JSON."""

    def __init__(self, role: str, *arguments: Any) -> None:
        script = str(Path(sys.argv[0]).resolve())
        command = [sys.executable, script, "--role", role, "--arguments", json.dumps(arguments)]
        self._role = role
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self) -> None:
        """Send a request."""
        print(file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Wait for the answer."""
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise RuntimeError(f"The process with the role '{self._role}' failed; its own message is above.")
        return json.loads(line)

    def ask(self) -> Any:
        """Send a request and wait for the answer."""
        self.start()
        return self.answer()

    def only_answer(self) -> Any:
        """Send one request, wait for the answer and end the process."""
        answer = self.ask()
        self.close()
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def options_or_serve(parser: ArgumentParser, roles: Mapping[str, Callable[..., Callable[[], object]]]) -> Namespace:
    """The options with `--rounds`; in a child, do the role's task for every request instead, and exit."""
    parser.add_argument("--rounds", type=int, default=30, help="interleaved rounds; medians are compared")
    parser.add_argument("--role", choices=roles, help=SUPPRESS)
    parser.add_argument("--arguments", type=json.loads, default=[], help=SUPPRESS)
    options = options_of(parser)
    if options.role:
        one = roles[options.role](*options.arguments)
        for _ in sys.stdin:
            print(json.dumps(one()), flush=True)
        sys.exit()
    _warn_of_other_work()
    return options
