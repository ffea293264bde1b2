"""Sites that come and go, as real processes: what one does, and a director who starts, stops and kills them."""

import ctypes
import json
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gossamer import Sites, data, optim
from gossamer._common import checkpoint_file
from gossamer.network.sites import Change, serve

os.environ.setdefault("RUST_LOG", "error")  # torchft reads it when the processes below preload it
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.forked"])

NAMES = ("aare", "bode", "cher", "dart", "ebro", "fulda", "gail", "havel")
LOOPBACK = "127.0.0.1"


def site(name: str, place: Path, plan: dict[str, Any], host: str = "") -> None:
    """One site: trains on its own data, and leaves files that tell what happened to it and how it ended."""
    os.chdir(place)
    enter(host)
    with (place / f"{name}.log").open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", force=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches = torch.Generator().manual_seed(NAMES.index(name))
    model, loss = TASKS[plan["task"]](name, plan, batches)

    def changed(change: Change) -> None:
        with (place / f"{name}.changes").open("a") as file:
            file.write(json.dumps([time.time(), *change]) + "\n")
        replace(place / f"{name}.changed", {"x": flat(model).tolist(), **optimizer.stats()})

    own = {**{key: plan[key] for key in ("at_least", "patience", "stale")}, "on_change": changed}
    options = {"topology": plan["topology"], "sites": Sites(plan["coordinator"], name=name, **own), **plan["options"]}
    inner: torch.optim.Optimizer | None = None
    if plan["method"] == "Outer":
        inner = torch.optim.SGD(model.parameters(), lr=plan["lr"])
        optimizer: optim.DecentralizedOptimizer = optim.Outer(inner, every=2, **options)
    else:
        optimizer = getattr(optim, plan["method"])(model.parameters(), lr=plan["lr"], **options)
    halved = lambda r: 0.5 ** sum(r >= m for m in plan["milestones"])  # noqa: E731
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner or optimizer, halved)
    extra = {"scheduler": scheduler, "batches": batches}
    saver = optim.Checkpoints(place / "disk", model, optimizer, every=plan["every"], extra=extra)
    made = (place / f"{name}.rounds").open("ab", buffering=0)
    for r in saver.rounds(plan["rounds"]):
        if not (place / f"{name}.began").exists():
            replace(place / f"{name}.began", flat(model).tolist())
        for _ in range(1 if inner is None else 2):
            optimizer.zero_grad()
            loss(model).backward()
            if (place / f"{name}.nan").exists():
                (place / f"{name}.nan").unlink()
                next(model.parameters()).grad.fill_(torch.nan)  # type: ignore[union-attr]
            optimizer.step()
        scheduler.step()
        made.write(f"{time.time()} {optimizer.round}\n".encode())
        if optimizer.round % 50 == 0:
            replace(place / f"{name}.x", flat(model).tolist())
        if r + 1 < plan["rounds"]:
            time.sleep(plan["pace"])
    told = {"round": optimizer.round, "lr": scheduler.get_last_lr()[0], "x": flat(model).tolist()}
    if plan["method"] == "MomentumTracking":  # what must have mean zero over all sites
        told["y - u"] = [float(v) for b in optimizer._buckets for v in b.state.y - b.state.signal]
    if plan["task"] == "digits":
        digits = data.load("digits")
        with torch.no_grad():
            shown = model(digits.test_inputs.float() / 16).argmax(1)
        told["accuracy"] = float((shown == digits.test_targets).float().mean())
    told["stats"] = optimizer.stats()
    optimizer.close()
    replace(place / f"{name}.end", told)


def replace(path: Path, value: object) -> None:
    """Write a file that is never seen half written."""
    path.with_suffix(".new").write_text(json.dumps(value))
    path.with_suffix(".new").rename(path)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def digits_task(name: str, plan: dict[str, Any], batches: torch.Generator) -> Any:
    inputs, targets = own_digits(name, plan)

    def loss(model: nn.Module) -> Tensor:
        chosen = torch.randint(len(inputs), (16,), generator=batches)
        return nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen])

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10)), loss


def curvature_and_optimum(name: str) -> tuple[float, float]:
    """Of the quadratic of a site."""
    k = NAMES.index(name)
    return 1 + 0.5 * k, 3.0 * (-1) ** k * (k + 1)


def quadratic_task(name: str, plan: dict[str, Any], batches: torch.Generator) -> Any:
    """Full gradients of a / 2 |x - b|^2, in float64. The model has a mask, which no mean may be taken of."""
    a, b = curvature_and_optimum(name)
    model = nn.Linear(3, 1, dtype=torch.float64)
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    return model, lambda model: sum(a / 2 * (p - b).square().sum() for p in model.parameters())


TASKS = {"digits": digits_task, "quadratic": quadratic_task}


def own_digits(name: str, plan: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The digits of two or three classes, which differ from site to site."""
    digits = data.load("digits")
    k = plan["names"].index(name)
    n = len(plan["names"])
    mine = torch.isin(digits.train_targets, torch.tensor([c for c in range(10) if c % n == k or (c + 3) % n == k]))
    return digits.train_inputs[mine].float() / 16, digits.train_targets[mine]


def coordinate(port: int, host: str) -> None:
    """The coordinator."""
    server = serve(host, port)
    assert server
    while True:
        time.sleep(10)


def enter(host: str) -> None:
    """Go into the network namespace of a host."""
    if host:
        with Path(f"/run/netns/{host}").open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")


class Director:
    """Starts sites in `place`, and knows how far they are."""

    def __init__(
        self,
        place: Path,
        names: Sequence[str] = NAMES[:4],
        *,
        coordinator: str = LOOPBACK,
        hosts: bool = False,
        **plan: Any,
    ) -> None:
        self.place, self.names, self.hosts = place, tuple(names), hosts
        self.host = coordinator
        with socket.socket() as probe:
            probe.bind((coordinator, 0))
            self.port = int(probe.getsockname()[1])
        self.plan: dict[str, Any] = {
            "method": "MomentumTracking", "topology": "ring", "lr": 0.05, "rounds": 400, "pace": 0.004, "patience": 1.5,
            "at_least": 2, "stale": 100, "every": 50, "milestones": [200], "task": "digits", "options": {},
            "names": self.names, "coordinator": f"{coordinator}:{self.port}",
            **plan,
        }  # fmt: skip
        self.processes: dict[str, BaseProcess] = {}
        self.coordinator: BaseProcess | None = None

    def __enter__(self) -> "Director":
        self.start_coordinator()
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.processes.values(), self.coordinator]:
            if process is not None:
                process.kill()
                process.join()

    def start_coordinator(self) -> None:
        self.coordinator = _context.Process(target=coordinate, args=(self.port, self.host))
        self.coordinator.start()

    def kill_coordinator(self) -> None:
        assert self.coordinator is not None
        self.coordinator.kill()
        self.coordinator.join()

    def start(self, name: str, **changes: Any) -> None:
        host = name if self.hosts else ""
        self.processes[name] = _context.Process(target=site, args=(name, self.place, {**self.plan, **changes}, host))
        self.processes[name].start()

    def send(self, name: str, number: signal.Signals) -> None:
        pid = self.processes[name].pid
        assert pid is not None
        os.kill(pid, number)

    def kill(self, name: str) -> None:
        self.send(name, signal.SIGKILL)
        self.processes[name].join()

    def forget(self, name: str) -> None:
        """Lose the disk of a site."""
        subprocess.run(["rm", "-rf", str(self.place / "disk" / f"node-{name}")], check=True)

    def link(self, name: str, state: str) -> None:
        """Bring the link of a host "up" or "down"."""
        subprocess.run(["ip", "link", "set", f"port-{name}", state], check=True)

    def connect(self, names: Sequence[str], bridge: str) -> None:
        """Move the links of hosts to a bridge."""
        for name in names:
            subprocess.run(["ip", "link", "set", f"port-{name}", "master", bridge], check=True)

    # What is known of them -------------------------------------------------------------------------------------------

    def made(self, name: str) -> list[tuple[float, int]]:
        """When a site completed which rounds."""
        path = self.place / f"{name}.rounds"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(when), int(round)) for when, round in (line.split() for line in lines)]

    def round(self, name: str) -> int:
        """How far a site is."""
        path = self.place / f"{name}.rounds"
        if not path.exists() or not path.stat().st_size:
            return 0
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 100))
            return int(file.read().split()[-1])

    def changes(self, name: str) -> list[list[Any]]:
        """What a site was told of changes, each with the time."""
        return [json.loads(line) for line in (self.place / f"{name}.changes").read_text().splitlines()]

    def disk(self, name: str) -> list[int]:
        """The rounds of the checkpoints of a site."""
        return checkpoint_file.rounds_in(self.place / "disk" / f"node-{name}")

    def log(self, name: str) -> str:
        path = self.place / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait for something to happen."""
        deadline = time.monotonic() + seconds
        while not condition():
            logs = "\n".join(f"--- {name}\n{self.log(name)[-2000:]}" for name in self.names)
            assert time.monotonic() < deadline, logs
            time.sleep(0.02)

    def advance(self, names: Sequence[str], rounds: int = 10, seconds: float = 30.0) -> None:
        """Wait until sites have made some more rounds."""
        goal = max(self.round(name) for name in names) + rounds
        self.until(lambda: all(self.round(name) >= goal for name in names), seconds)

    def finish(self, seconds: float = 60.0) -> dict[str, dict[str, Any]]:
        """Wait for the end of all sites; what each of them tells."""
        self.until(lambda: all((self.place / f"{name}.end").exists() for name in self.names), seconds)
        for name in self.names:
            self.processes[name].join(10)
        assert {name: self.processes[name].exitcode for name in self.names} == dict.fromkeys(self.names, 0)
        return {name: json.loads((self.place / f"{name}.end").read_text()) for name in self.names}
