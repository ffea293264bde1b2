"""What the hosts in test_tunnels.py run: python -m tests.links.programs PROGRAM ARGUMENTS..."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROUNDS = 10
OTHER_SERVICE = 8080
"""A port that has nothing to do with the training."""


def train(graph: str, pause: bool) -> None:
    """A site of a training, which writes its model to NAME.json; in the middle it lets the stranger try.

    As torchrun starts it, that is with the process group still to be made.
    """
    import torch
    import torch.distributed as dist

    import gossamer as gs

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    topology = gs.topology.from_file(graph)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = gs.optim.MomentumTracking(model.parameters(), lr=0.05, momentum=0.9, topology=topology)
    name = (topology.labels or ())[optimizer.node]
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(optimizer.node)) + optimizer.node
    targets = inputs.sum(1, keepdim=True).sin()
    for k in range(ROUNDS):
        if pause and k == ROUNDS // 2:
            Path(f"{name}.paused").touch()
            while not Path("go-on").exists():
                time.sleep(0.05)
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    optimizer.close()
    dist.destroy_process_group()
    numbers = {key: value.numpy().tobytes().hex() for key, value in model.state_dict().items()}
    Path(f"{name}.json").write_text(json.dumps(numbers), encoding="utf-8")


def capture(interface: str, file: str) -> None:
    """Write every byte on an interface to a file."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    every_protocol = socket.htons(3)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every_protocol) as packets, Path(file).open("wb") as kept:
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        packets.bind((interface, 0))
        Path(f"{file}.ready").touch()
        while True:
            kept.write(packets.recv(1 << 16))
            kept.flush()


def serve() -> None:
    """Another service of a site."""
    with socket.create_server(("0.0.0.0", OTHER_SERVICE), backlog=16):
        time.sleep(600)


def knock(where: str, given: str) -> None:
    """Try to connect to each of the addresses and write what became of it."""
    found = {}
    for target in json.loads(given):
        try:
            socket.create_connection(target, timeout=10).close()
            found["{}:{}".format(*target)] = "connected"
        except OSError as error:
            found["{}:{}".format(*target)] = os.strerror(error.errno) if error.errno else str(error)
    Path(where).write_text(json.dumps(found), encoding="utf-8")


def ports_of_torch(file: str) -> list[int]:
    """The ports at which `gossamer doctor --network --json` saw torch listen."""
    seen = json.loads(Path(file).read_text(encoding="utf-8"))["listeners"]
    return [one["port"] for one in seen if one["torch"] and one["interface"] != "lo"]


def targets() -> None:
    """Print the ports of the store and of gloo, at the addresses outside and inside the tunnels."""
    found = []
    for k, site in enumerate(("berlin", "lima")):
        for port in ports_of_torch(f"{site}.doctor"):
            found += [(f"192.0.2.{k + 1}", port), (f"10.77.0.{k + 1}", port)]
        found.append((f"192.0.2.{k + 1}", OTHER_SERVICE))
    print(json.dumps(found))


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    programs: dict[str, Callable[..., None]] = {
        "train": partial(train, pause=True), "capture": capture, "serve": serve, "knock": knock, "targets": targets,
    }  # fmt: skip
    programs[program](*arguments)
